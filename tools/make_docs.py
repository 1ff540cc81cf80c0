"""Writes the parts of README.md and docs/ that are made from the code, so that no page can say something else.

    python tools/make_docs.py            write them
    python tools/make_docs.py --check    only look: exit 1 names each page that is out of date

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; `PARTS` has the names, and `WHOLE` the files that
are made from end to end.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

# Beside this file, also where a test loads it by its path.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import command_words
import manual
import requirements

from agentrun import errors
from agentrun.cli.app import app
from agentrun.errors import AgentrunError
from agentrun.lifecycle.routing import MODES, IfBusy, Standing, route, standing
from agentrun.records.message import PROMPT
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import (
    ENDING_OF_INTENT,
    FACTS,
    INITIAL,
    OPEN,
    OPERATION_TRANSITIONS,
    TRANSITIONS,
    WINDING_DOWN_WORDS,
    EventType,
    OperationStatus,
    RunStatus,
)

ROOT = Path(__file__).resolve().parent.parent
REFRESH = "make docs"

_PART = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)
_BEGIN = re.compile(r"<!-- generated: .*? -->")


class Fault(Exception):
    """A page whose markers cannot be used."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    faults = []
    for page in pages():
        try:
            faults += _refresh(page, check=check)
        except Fault as error:
            faults.append(f"{page.relative_to(ROOT)}: {error}")
    for path, make in WHOLE.items():
        faults += _refresh_whole(ROOT / path, make(), check=check)
    faults += [f"no page has a place for the part {name!r}" for name in sorted(set(PARTS) - _used())]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def pages() -> list[Path]:
    """All pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(text: str) -> tuple[str, list[str]]:
    """A page with its generated parts as the code has them now, and the names of those that were not so.

    Raises Fault for a part of an unknown name and for a marker that has no end.
    """
    stale: list[str] = []

    def fresh(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in PARTS:
            raise Fault(f"there is no part {name!r}; the parts are: {', '.join(PARTS)}")
        whole = f"<!-- generated: {name} -->\n{PARTS[name]()}\n<!-- end -->"
        if whole != match[0]:
            stale.append(name)
        return whole

    if len(_BEGIN.findall(text)) != len(_PART.findall(text)):
        raise Fault("a `<!-- generated: NAME -->` has no `<!-- end -->` or no proper name")
    return _PART.sub(fresh, text), stale


def _refresh(page: Path, *, check: bool) -> list[str]:
    text = page.read_text(encoding="utf-8")
    fresh, stale = refreshed(text)
    if check:
        return [
            f"{page.relative_to(ROOT)}: the part {name!r} is out of date; refresh it with: {REFRESH}" for name in stale
        ]
    if stale:
        page.write_text(fresh, encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {', '.join(stale)}")
    return []


def _refresh_whole(path: Path, fresh: str, *, check: bool) -> list[str]:
    if path.exists() and path.read_text(encoding="utf-8") == fresh:
        return []
    if check:
        return [f"{path.relative_to(ROOT)} is out of date; refresh it with: {REFRESH}"]
    path.write_text(fresh, encoding="utf-8")
    print(path.relative_to(ROOT))
    return []


def _used() -> set[str]:
    return {match["name"] for page in pages() for match in _PART.finditer(page.read_text(encoding="utf-8"))}


# Diagrams.


def run_diagram() -> str:
    arrows = [f"[*] --> {INITIAL.value}: {EventType.RUN_ACCEPTED.value}"]
    for status, row in TRANSITIONS.items():
        events: dict[RunStatus, list[str]] = {}
        for event, targets in row.items():
            for target in targets:
                events.setdefault(target, []).append(event.value)
        arrows += [f"{status.value} --> {target.value}: {', '.join(names)}" for target, names in events.items()]
        if not row:
            arrows.append(f"{status.value} --> [*]")
    return _diagram(arrows)


def operation_diagram() -> str:
    arrows = [
        f"[*] --> {OperationStatus.PENDING.value}: {EventType.TOOL_REGISTERED.value}",
        f"[*] --> {OperationStatus.RUNNING.value}: {EventType.MODEL_REQUEST_STARTED.value}",
    ]
    for status in OperationStatus:
        arrows += [f"{status.value} --> {target.value}" for target in _sorted(OPERATION_TRANSITIONS[status])]
    return _diagram(arrows)


def _diagram(arrows: Iterable[str]) -> str:
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```"])


# Tables.


def transition_table() -> str:
    rows = [["(none)", _code(EventType.RUN_ACCEPTED), _code(INITIAL)]]
    for status, row in TRANSITIONS.items():
        rows += [[_code(status), _code(event), _codes(targets)] for event, targets in row.items()]
        if not row:
            rows.append([_code(status), "nothing: it is terminal", ""])
    return _table(["status", "event", "becomes"], rows)


def facts_table() -> str:
    rows = [[_code(event), _statuses(allowed)] for event, allowed in FACTS.items()]
    return _table(["event", "recorded while the run is"], rows)


def ending_table() -> str:
    rows = [[_code(intent), _code(end), WINDING_DOWN_WORDS[end]] for intent, end in ENDING_OF_INTENT.items()]
    return _table(["intent", "the run ends as", "until then `show` calls it"], rows)


def operation_table() -> str:
    rows = []
    for status in OperationStatus:
        targets = _sorted(OPERATION_TRANSITIONS[status])
        rows.append([_code(status), _codes(targets) if targets else "nothing: it is certain"])
    return _table(["status of an operation", "may become"], rows)


def routing_table() -> str:
    """What `route` makes of every way to say something, in every state of the slot: asked, not copied."""
    ways: list[tuple[str, str | None, IfBusy | None]] = [("plain `send`", None, None)]
    ways += [(f"`--mode {mode}`", mode, None) for mode in MODES]
    ways += [(f"`--if-busy {policy.value}`", None, policy) for policy in IfBusy]
    rows = [
        [words, *(_routed(active, mode, if_busy) for _, mode, if_busy in ways)] for words, active in _states_of_slot()
    ]
    return _table(["the slot is held by a run that is", *(words for words, _, _ in ways)], rows)


def _states_of_slot() -> Iterable[tuple[str, RunView | None]]:
    yield "(the slot is free)", None
    for status in RunStatus:
        if status is RunStatus.WAITING_INPUT:
            yield f"{_code(status)}, with a question", _view(status, "question")
            yield f"{_code(status)}, for an approval", _view(status, "approval")
        elif status in OPEN:
            yield _code(status), _view(status, None)


def _view(status: RunStatus, kind: str | None) -> RunView:
    run = Run("session-1", "run-1", "ann", status, waiting_for={"kind": kind} if kind else None)
    return RunView(run, status, "alive")


def _routed(active: RunView | None, mode: str | None, if_busy: IfBusy | None) -> str:
    try:
        kind = route(active, mode, if_busy)
    except AgentrunError as error:
        return f"refused ({error.exit_code})"
    return f"{kind}{_TURN[standing(active, if_busy)]}" if kind == PROMPT else kind


# When the turn of a prompt comes, in the words of the page.
_TURN = {Standing.NOW: "", Standing.LAST: ", waits", Standing.NEXT: ", comes next"}


def exit_table() -> str:
    rows = [[code, _code(word) if word else "", meaning] for code, word, meaning in errors.exit_table()]
    return _table(["exit", "code word", "meaning"], rows)


def command_table() -> str:
    commands: Any = typer.main.get_command(app)
    rows = []
    for name, command in commands.commands.items():
        arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
        rows.append([f"`agentrun {' '.join([name, *arguments])}`", command.get_short_help_str(limit=200)])
    return _table(["command", "what it does"], rows)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # A bar inside a cell would end it, also within backticks.
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(word: str) -> str:
    return f"`{word}`"


def _codes(words: Iterable[str]) -> str:
    return " ".join(_code(word) for word in words)


def _statuses(allowed: frozenset[RunStatus]) -> str:
    if allowed == frozenset(RunStatus):
        return "anything, also when it is over"
    if allowed == OPEN:
        return "not over"
    if allowed == OPEN - {RunStatus.QUEUED}:
        return "not over, and not `queued`"
    return _codes(status for status in RunStatus if status in allowed)


def _sorted(statuses: frozenset[OperationStatus]) -> list[OperationStatus]:
    return [status for status in OperationStatus if status in statuses]


PARTS: dict[str, Callable[[], str]] = {
    "run-diagram": run_diagram,
    "transitions": transition_table,
    "facts": facts_table,
    "endings": ending_table,
    "operation-diagram": operation_diagram,
    "operations": operation_table,
    "routing": routing_table,
    "exit-codes": exit_table,
    "commands": command_table,
    "requirements": requirements.table,
}

# Files that are made as a whole.
WHOLE: dict[str, Callable[[], str]] = {
    "agentrun/cli/words.py": lambda: command_words.module(typer.main.get_command(app)),
    "docs/agentrun.1": lambda: manual.page(typer.main.get_command(app)),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
