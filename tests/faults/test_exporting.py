"""kill -9 of an executor at every system call of a run with reads, writes and jobs outside; then one `recover`.

# covers A34 A60 A61 A62 B33 B37 B38 B62
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exporting import SEND, Outside, a_session, then_one_recover_settles_it
from rig import Call, Stage, killed
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
PARTS = 2


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def outside(stage: Stage) -> Iterator[Outside]:
    outside = Outside(stage)
    yield outside
    stage.end_executors()
    outside.close()


@pytest.mark.slow
def test_one_recover_settles_a_run_that_was_killed_over_its_job(stage: Stage, outside: Outside) -> None:
    a_session(stage)
    with stage.start(*SEND) as executor:
        stage.event("run-1", "tool.remote_id")
        executor.kill()
    stage.lost()
    assert then_one_recover_settles_it(stage, outside) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_one_recover_settles_a_run_wherever_it_was_killed(part: int, stage: Stage, outside: Outside) -> None:
    _kill(stage, outside, lambda calls: calls[part::PARTS])


def _kill(stage: Stage, outside: Outside, choose: Callable[[list[Call]], list[Call]]) -> None:
    a_session(stage)
    stage.keep()

    def begin() -> None:
        stage.put_back()
        outside.begin()

    calls = choose(stage.calls(*SEND, begin=begin))
    assert outside.effects() == ["orders", "stock"]
    wrong, kills = [], 0
    for call in calls:
        begin()
        kills += killed(stage.interrupted(call, "signal=KILL", *SEND, text="export"))
        found = then_one_recover_settles_it(stage, outside)
        wrong += [f"killed before {call} ({call.text[:150]}): {each}" for each in found]
    assert not wrong, "\n".join(wrong)
    # The order of what runs at the same time varies, and the last call of a kind may not come.
    assert kills >= len(calls) * 0.8, f"{kills} of {len(calls)} calls were reached"
