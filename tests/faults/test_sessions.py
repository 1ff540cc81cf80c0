"""kill -9 and a refusing disk at any call of `rename`, `fork`, `import` and `rm`: each has happened or has not.

# covers A75 B7
# case C27
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from keeping import COMMANDS, judge, prepare, sessions
from rig import DONE, Call, Stage
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

STORAGE = 11
SAMPLE = 6
FAULTS = ("signal=KILL", "error=EIO")


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_it_has_happened_or_not(name: str, fault: str, tmp_path: Path) -> None:
    _interrupt(name, fault, tmp_path, lambda calls: calls[:: max(1, len(calls) // SAMPLE)] + calls[-1:])


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_it_has_happened_or_not_wherever_it_is_interrupted(name: str, fault: str, tmp_path: Path) -> None:
    _interrupt(name, fault, tmp_path, lambda calls: calls)


def _interrupt(name: str, fault: str, base: Path, choose: Callable[[list[Call]], list[Call]]) -> None:
    stage = Stage(base)
    prepare(stage)
    words = COMMANDS[name]
    calls = choose(stage.calls(*words, begin=stage.put_back))
    assert calls
    wrong = []
    for trial, call in enumerate(calls):
        stage.put_back()
        before = sessions(stage)
        done = stage.interrupted(call, fault, *words)
        # What was acknowledged has happened; what a signal or the disk stopped may have.
        faults = judge(stage, name, before, done.code, by_repair=trial % 2 == 1)
        wrong += [f"{fault} at {call} ({call.text[:150]}): {each}" for each in faults]
        if fault != FAULTS[0] and done.code not in (DONE, STORAGE):
            wrong.append(f"{fault} at {call} ({call.text[:150]}): it was not said: {done}")
    assert not wrong, "\n".join(wrong)
