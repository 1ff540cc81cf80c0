"""kill -9 and a refusing disk at any call of `rename`, `fork`, `import` and `rm`: each has happened or has not.

# covers A75 B7
# case C27
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from history import Doc
from rig import DONE, SESSION, Call, Stage
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

NOT_FOUND = 8
STORAGE = 11
COMMANDS = {
    "rename": ("rename", SESSION, "another"),
    "archive": ("archive", SESSION),
    "fork": ("fork", SESSION),
    "import": ("import", "talk.tar", "--as", "s2"),
    "rm": ("rm", SESSION, "--yes"),
}
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
    assert stage.run("new", "first", "--id", SESSION).code == DONE
    assert stage.send("quick").code == DONE
    assert stage.run("export", SESSION, "--output", "talk.tar").code == DONE
    stage.keep()
    words = COMMANDS[name]
    calls = choose(stage.calls(*words, begin=stage.put_back))
    assert calls
    wrong = []
    for trial, call in enumerate(calls):
        stage.put_back()
        before = _sessions(stage)
        done = stage.interrupted(call, fault, *words)
        # What was acknowledged has happened; what a signal or the disk stopped may have.
        faults = _judge(stage, name, before, done.code, by_repair=trial % 2 == 1)
        wrong += [f"{fault} at {call} ({call.text[:150]}): {each}" for each in faults]
        if fault != FAULTS[0] and done.code not in (DONE, STORAGE):
            wrong.append(f"{fault} at {call} ({call.text[:150]}): it was not said: {done}")
    assert not wrong, "\n".join(wrong)


def _judge(stage: Stage, name: str, before: dict[str, Doc], code: int, *, by_repair: bool) -> Iterator[str]:
    after = _sessions(stage)
    yield from _changed(name, before, after, is_certain=code == DONE)
    if name == "rm" and by_repair:
        yield from _repaired(stage, after)
        return
    # Whoever comes next finds nothing in the way, and finishes what was left.
    again = stage.run(*COMMANDS[name])
    gone = name == "rm" and SESSION not in after
    if again.code != (NOT_FOUND if gone else DONE):
        yield f"again: {again}"
    if name == "rm":
        left = _hidden(stage)
        if left or _sessions(stage):
            yield f"left behind: {left}"
        return
    yield from stage.check(settled=True)
    sent = stage.send("quick")
    if sent.code != DONE:
        yield f"send afterwards: {sent}"


def _repaired(stage: Stage, after: dict[str, Doc]) -> Iterator[str]:
    """What a removal that was interrupted has left is named by `check`, and finished by a repair: or all is there."""
    left = _hidden(stage)
    named = {line["finding"]["path"] for line in stage.run("check").lines()}
    if {str(path) for path in left} != named:
        yield f"left are {left}, named are {named}"
    repaired = stage.run("check", "--repair")
    if repaired.code != DONE or [line for line in repaired.lines() if not line["finding"]["repaired"]]:
        yield f"a repair: {repaired}"
    if _hidden(stage) or _sessions(stage) != after:
        yield f"after a repair there are {_hidden(stage)} and {sorted(_sessions(stage))}, before {sorted(after)}"
    if after:
        yield from stage.check(settled=True)


def _hidden(stage: Stage) -> list[Path]:
    return list(stage.root.glob("accounts/*/sessions/.*"))


def _changed(name: str, before: dict[str, Doc], after: dict[str, Doc], *, is_certain: bool) -> Iterator[str]:
    """What is neither as it was nor as the command makes it."""
    as_it_was = after == before
    if is_certain and as_it_was:
        yield "it was acknowledged and has not happened"
    if as_it_was:
        return
    match name:
        case "rm":
            if after:
                yield f"half removed: {after}"
        case "fork":
            forks = [each for session, each in after.items() if session not in before]
            if len(forks) != 1 or forks[0]["texts"] != before[SESSION]["texts"] or after[SESSION] != before[SESSION]:
                yield f"half a fork: {after}"
        case "import":
            if set(after) != {SESSION, "s2"} or after["s2"]["texts"] != before[SESSION]["texts"]:
                yield f"half an import: {after}"
        case _:
            field, value = ("title", "another") if name == "rename" else ("archived", True)
            expected = before[SESSION]["session"] | {field: value, "revision": 2}
            found = after[SESSION]["session"]
            if found | {"updatedAt": None} != expected | {"updatedAt": None}:
                yield f"half changed: {found}"


def _sessions(stage: Stage) -> dict[str, Doc]:
    """All sessions as the files tell them."""
    found: dict[str, Doc] = {}
    for directory in stage.root.glob("accounts/*/sessions/[a-zA-Z0-9]*"):
        lines = (directory / "messages.jsonl").read_bytes().split(b"\n")[:-1]
        session = json.loads((directory / "session.json").read_bytes())
        found[directory.name] = {"session": session, "texts": [json.loads(line)["text"] for line in lines]}
    return found
