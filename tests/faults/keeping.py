"""What is done with a session as a whole. Wherever it was interrupted, it has happened or it has not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from history import Doc
from rig import DONE, SESSION, Stage

NOT_FOUND = 8
COMMANDS = {
    "rename": ("rename", SESSION, "another"),
    "archive": ("archive", SESSION),
    "fork": ("fork", SESSION),
    "import": ("import", "talk.tar", "--as", "s2"),
    "rm": ("rm", SESSION, "--yes"),
}


def prepare(stage: Stage) -> None:
    """A session with a run, and an archive of it beside the tree."""
    assert stage.run("new", "first", "--id", SESSION).code == DONE
    assert stage.send("quick").code == DONE
    assert stage.run("export", SESSION, "--output", "talk.tar").code == DONE
    stage.keep()


def judge(stage: Stage, name: str, before: dict[str, Doc], code: int, *, by_repair: bool) -> Iterator[str]:
    """What is wrong after the command, which ended with `code`; `before` is what there was."""
    after = sessions(stage)
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
        if left or sessions(stage):
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
    if _hidden(stage) or sessions(stage) != after:
        yield f"after a repair there are {_hidden(stage)} and {sorted(sessions(stage))}, before {sorted(after)}"
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


def sessions(stage: Stage) -> dict[str, Doc]:
    """All sessions as the files tell them."""
    found: dict[str, Doc] = {}
    for directory in stage.root.glob("accounts/*/sessions/[a-zA-Z0-9]*"):
        lines = (directory / "messages.jsonl").read_bytes().split(b"\n")[:-1]
        session = json.loads((directory / "session.json").read_bytes())
        found[directory.name] = {"session": session, "texts": [json.loads(line)["text"] for line in lines]}
    return found
