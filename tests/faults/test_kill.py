"""kill -9 at any system call that touches the tree: nothing acknowledged is lost, and the next command goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rig import Call, Stage, killed
from situations import SITUATIONS, Situation
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

# The quick test takes about so many calls of each command; the exhaustive one all of them.
SAMPLE = 3
# A kill leaves what the kernel knows, synced or not, and frees all locks: dying before one of these is the same as
# dying before the next call that changes something. (A power cut knows the difference.)
LEAVE_NO_TRACE = {"fsync", "fdatasync", "flock"}
# Whether a certain call comes depends on what runs at the same time: one that did not is waited for again.
TRIES = 3


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_nothing_is_lost_when_it_is_killed_now_and_then(name: str, tmp_path: Path) -> None:
    _kill(name, tmp_path, lambda calls: calls[len(calls) // (2 * SAMPLE) :: max(1, len(calls) // SAMPLE)])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SITUATIONS)
def test_nothing_is_lost_wherever_it_is_killed(name: str, tmp_path: Path) -> None:
    _kill(name, tmp_path, lambda calls: calls)


def _kill(name: str, base: Path, choose: Callable[[list[Call]], list[Call]]) -> None:
    situation = SITUATIONS[name]
    stage = Stage(base)
    situation.set_up(stage)
    calls = stage.calls(*situation.words, begin=lambda: situation.start(stage))
    calls = choose([call for call in calls if call.name not in LEAVE_NO_TRACE])
    wrong, kills = [], 0
    for trial, call in enumerate(calls):
        for _ in range(TRIES):
            is_killed = _killed_at(stage, situation, call)
            wrong += [f"killed before {call} ({call.text[:150]}): {each}" for each in situation.after(stage, trial)]
            if is_killed:
                kills += 1
                break
    stage.end_executors()
    assert not wrong, "\n".join(wrong)
    # The order of what runs at the same time varies, and the last call of a kind may not come.
    assert kills >= len(calls) * 0.8, f"{kills} of {len(calls)} calls were reached"


def _killed_at(stage: Stage, situation: Situation, call: Call) -> bool:
    situation.start(stage)
    return killed(stage.interrupted(call, "signal=KILL", *situation.words, text=situation.text))
