"""Hostile text on every path to a terminal: one table of all commands, one process that runs them on a terminal.

The live view and the foreground have their tests in `test_text`.
"""

from __future__ import annotations

import getpass
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.states import EventType as E
from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any

pytestmark = pytest.mark.slow

# Clears the screen, sets the title, colours, goes back, turns around, hides, breaks the line; a wide character.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202e\u2066\u200b\ufeff\u2028\x85\u6bcf end"
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
SGR = re.compile(r"\x1b\[[0-9;]*m")
S, R = "sess-one", "sess-one/run-2"
# Every command, with hostile text (%) in whatever it takes and whatever it finds.
TABLE = """
show S | show R | show R --timeline | show S --timeline | show R --operations | show S --messages
show S/1 --report | show S --json | show R --json | show S --html % | show S --html new% | show S --html no/% | show %
show S/% | show sess
show S --tail % | % | show --% | ls | ls % | ls --status % | ls --limit 1 | search end | search % | search x%
search end --json | agents | agents check % | agents check no% | config | config --json | --root no% ls
--config % agents | --account % ls | new --id % | new --agent no% | new --id S | send S --file no% | send S x --attach %
send S x --ref % | send S x --attach shared:% | send S x --agent no% | send S x --mode % | send S x --if-busy %
send S x --timeout % | steer S/1 % | steer R % | steer R % --key % | approve R % | deny R % --note % | cancel R --op %
recover --dry-run | resume R | reconcile R | reconcile R % | reconcile R op-2 --as failed --note % | cancel R --reason %
wait R | wait % | show R | rename S % | archive S | unarchive S | fork S | fork S --at % | rm S
export S | export S --format % | export S --output % | import % | completion % | compact % | check
"""
DAMAGED = """
ls | show S | show R | show R --timeline | show R --html - | search end | show sess-two | show R --json | export S
recover | check | check --repair
"""


def commands(table: str) -> list[list[str]]:
    named = {"S": S, "R": R, "S/1": f"{S}/1"}
    lines = table.strip().replace("\n", " | ").split(" | ")
    return [
        [named.get(word, word.replace("S/%", f"{S}/%").replace("%", HOSTILE)) for word in line.split()]
        for line in lines
    ]


def faults(argvs: list[list[str]], parts: list[tuple[int, str]]) -> list[tuple[list[str], list[str]]]:
    """The command lines that sent what drives a terminal, glued an id to something, or met a bug of ours."""
    found = []
    for argv, (code, sent) in zip(argvs, parts, strict=True):
        text = SGR.sub("", sent).replace("\r\n", "\n")
        bad = [
            each for each in text if each not in "\n\t" and unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        ]
        glued = [] if argv[0] == "export" else re.findall(r"sess-(?:one|two)(?:/run-[0-9]+)?[^\s/\w\"\\<-]", text)
        bugs = ["a bug"] if code == 70 or "Traceback" in text else []
        if bad or glued or bugs:
            found.append((argv, [*map(repr, sorted(set(bad))), *glued, *bugs]))
    return found


@pytest.fixture
def hostile(home: Home) -> Path:
    """A tree in which everything that can be stored is hostile; its directory of sessions."""
    (home.path / HOSTILE).touch()
    home.config.write_text(
        f'default_agent = "analyst"\n[agents.analyst]\nmodel = "scripted:script.json"\ntools = ["say"]\n'
        f"[agents.{json.dumps(HOSTILE)}]\nkind = \"command\"\ncommand = [{json.dumps(HOSTILE)}]\n"
        f'[tools.say]\nargv = [{json.dumps(HOSTILE)}]\neffect = "read"\ndescription = {json.dumps(HOSTILE)}\n'
    )  # fmt: skip
    tree = Tree(str(home.root), getpass.getuser())
    session = tree.create_session(title=HOSTILE, session_id="sess-one", agent=HOSTILE)
    tree.create_session(title=HOSTILE, session_id="sess-two")
    trees.completed(session, HOSTILE, HOSTILE)
    run = trees.accept(session, HOSTILE, key=HOSTILE).run_id
    executor = trees.Executor(session, run)
    executor.deliver(HOSTILE)
    executor.append(E.MODEL_REQUEST_STARTED, operationId="op-1", turnId=HOSTILE, model=HOSTILE, attempt=1)
    executor.append(E.MODEL_REQUEST_FINISHED, operationId="op-1", status="failed", error=HOSTILE, attempt=1)
    names = {"toolCallId": HOSTILE, "toolName": HOSTILE}
    for number, effect in ((2, "write"), (3, "read")):
        more = {"effect": effect, "resource": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "idempotencyKey": HOSTILE}
        executor.append(E.TOOL_REGISTERED, operationId=f"op-{number}", turnId=HOSTILE, **more, **names)
        executor.append(E.TOOL_STARTED, operationId=f"op-{number}", attempt=1, **names)
    executor.append(E.TOOL_REMOTE_ID, operationId="op-2", remoteId=HOSTILE)
    executor.append(E.TOOL_PROGRESS, operationId="op-2", text=HOSTILE)
    executor.append(E.TOOL_FINISHED, operationId="op-3", status="failed", error=HOSTILE, note=HOSTILE, attempt=1)
    executor.die()
    return Path(session.directory.path).parent


def test_no_command_sends_what_is_stored_or_typed(home: Home, hostile: Path) -> None:
    # covers A52; case C22
    argvs = commands(TABLE)
    parts = home.drive(argvs)
    assert faults(argvs, parts) == []
    # It was there to be sent.
    assert sum("owned" in text for _, text in parts) > 40


def test_nor_what_damage_names(home: Home, hostile: Path) -> None:
    (hostile / HOSTILE).mkdir()
    log = hostile / "sess-one" / "runs" / "run-2" / "operations.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b'"run-2"', json.dumps(HOSTILE).encode())
    lines.insert(4, b"{" + HOSTILE.encode())
    log.write_bytes(b"\n".join(lines))
    document = hostile / "sess-two" / "session.json"
    document.write_text(document.read_text().replace('"sess-two"', json.dumps(HOSTILE)))
    argvs = commands(DAMAGED)
    assert faults(argvs, home.drive(argvs)) == []


def test_every_word_on_standard_error_goes_through_what_makes_it_safe() -> None:
    package = Path(agentrun.__file__).parent / "cli"
    for path in package.rglob("*.py"):
        assert not re.search(r"output\.say\(f?[\"'](?!\\n\"\))", path.read_text(encoding="utf-8")), (
            f"{path}: use output.note"
        )
