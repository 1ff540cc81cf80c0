"""Every command with `--json`: each line that it prints is of the kind that docs/json.md says, field by field.

The tables of that page, and of docs/format.md for what is stored, are read here as the schema: there is no other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from agentrun.cli.app import app
from agentrun.errors import EXIT_CODES

Home = Any
Doc = dict[str, Any]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("json.md", "format.md")}
HEAD = "field | type | meaning"
_LINK = re.compile(r"\[[a-z-]+\]\((?P<page>[a-z-]+\.md)?#(?P<anchor>[a-z-]+)\)")


# The schema, as it is read from the pages.


class Field(NamedTuple):
    name: str
    is_optional: bool
    type: str


class Kind(NamedTuple):
    """A section of a page."""

    page: str
    anchor: str

    def fields(self) -> list[Field]:
        for heading, text in sections(self.page):
            if anchor(heading) == self.anchor:
                return list(fields_of(next(tables(text, HEAD), [])))
        raise AssertionError(f"{self.page} has no section {self.anchor}")


def sections(page: str) -> Iterator[tuple[str, str]]:
    parts = re.split(r"^#+ (.*)$", PAGES[page], flags=re.MULTILINE)
    return zip(parts[1::2], parts[2::2], strict=True)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def tables(text: str, head: str) -> Iterator[list[list[str]]]:
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        first, _, *rows = table.splitlines()
        if first == f"| {head} |":
            yield [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def fields_of(rows: list[list[str]]) -> Iterator[Field]:
    for names, types, *_ in rows:
        found = re.findall(r"`([^`]+)`(\?)?", names)
        each = types.split(", ") if types.count(",") == len(found) - 1 and len(found) > 1 else [types] * len(found)
        for (name, mark), one in zip(found, each, strict=True):
            yield Field(name, bool(mark), one)


def kind_of(link: re.Match[str]) -> Kind:
    return Kind(link["page"] or "json.md", link["anchor"])


EVENT = Kind("format.md", "operationsjsonl")
PAYLOADS = {
    row[0].strip("`"): row[1]
    for _, text in sections("format.md")
    for table in tables(text, "`type` | `payload` | who, synced")
    for row in table
}
SIMPLE: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "true": lambda value: value is True,
    "null": lambda value: value is None,
    "time": lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", value)),
    "object": lambda value: isinstance(value, dict),
    "anything": lambda value: True,
}


def faults(doc: Any, kind: Kind) -> list[str]:
    """What of `doc` is not as the pages say of its kind."""
    if not isinstance(doc, dict):
        return [f"{kind.anchor}: {doc!r} is no object"]
    fields = kind.fields()
    said = [
        f"{kind.anchor}: {each.name} is missing" for each in fields if not each.is_optional and each.name not in doc
    ]
    said += [f"{kind.anchor}: {name} is not on the page" for name in doc if name not in {each.name for each in fields}]
    for each in fields:
        if each.name in doc:
            said += [f"{kind.anchor}.{each.name}: {fault}" for fault in type_faults(doc[each.name], each.type)]
    return said + (payload_faults(doc) if kind == EVENT and not said else [])


def type_faults(value: Any, type_: str) -> list[str]:
    choices = [type_faults_of_one(value, each) for each in type_.split(" or ")]
    return [] if [] in choices else choices[0]


def type_faults_of_one(value: Any, type_: str) -> list[str]:
    if type_.startswith("list of "):
        one = type_.removeprefix("list of ").removesuffix("s") if "objects" in type_ else type_.removeprefix("list of ")
        if not isinstance(value, list):
            return [f"{value!r} is no list"]
        return [fault for each in value for fault in type_faults(each, one)]
    if link := _LINK.fullmatch(type_):
        return faults(value, kind_of(link))
    if words := re.fullmatch(r"`([^`]+)`", type_):
        return [] if value in words[1].split() else [f"{value!r} is none of {words[1]}"]
    assert type_ in SIMPLE, f"the page calls a type {type_!r}"
    return [] if SIMPLE[type_](value) else [f"{value!r} is no {type_}"]


def payload_faults(event: Doc) -> list[str]:
    words = re.findall(r"[A-Za-z]+\??", PAYLOADS[event["type"]].split(";")[0].strip("`"))
    if event["type"] == "operation.late_result":
        words = re.findall(r"[A-Za-z]+\??", PAYLOADS["operation.reconciled"])
    required = {word for word in words if not word.endswith("?")}
    known = {word.rstrip("?") for word in words}
    names = set(event["payload"])
    return [f"{event['type']}: {sorted(required - names)} missing"] * bool(required - names) + [
        f"{event['type']}: {sorted(names - known)} not on the page"
    ] * bool(names - known)


class Row(NamedTuple):
    kinds: list[Kind]
    is_one: bool


def rows() -> dict[str, Row]:
    found = {}
    for _, text in sections("json.md"):
        for table in tables(text, "command | prints | form"):
            for commands, kinds, form in table:
                for command in re.findall(r"`([^`]+)`", commands):
                    found[command] = Row(
                        [kind_of(each) for each in _LINK.finditer(kinds)], form.startswith("one document")
                    )
    return found


ROWS = rows()


def test_the_page_has_every_command() -> None:
    commands: Any = typer.main.get_command(app)
    missing = [name for name in commands.commands if name not in {row.split()[0] for row in ROWS}]
    assert missing == ["acp"], "docs/json.md has to say what they print with --json"


def test_every_kind_has_a_name_of_its_own() -> None:
    anchors = [anchor(heading) for heading, _ in sections("json.md")]
    assert sorted(anchors) == sorted(set(anchors))


def test_a_wrong_line_is_seen() -> None:
    right = {"sessionId": "s", "runId": "run-1", "report": "x"}
    kind = Kind("json.md", "report")
    assert faults(right, kind) == []
    assert faults(right | {"report": None}, kind) == ["report.report: None is no text"]
    assert faults(right | {"more": 1}, kind) == ["report: more is not on the page"]
    assert faults({"report": "x"}, kind) == ["report: sessionId is missing", "report: runId is missing"]
    assert faults({"type": "accept"}, Kind("json.md", "accepted"))[-1] == "accepted.type: 'accept' is none of accepted"
    event = {"sessionId": "s", "runId": "r", "seq": 1, "type": "run.failing", "at": "2026-03-20T09:14:07.512Z"}
    event |= {"generation": 1, "payload": {"why": "x"}}
    assert faults(event, EVENT) == ["run.failing: ['reason'] missing", "run.failing: ['why'] not on the page"]


# All commands, in one process that is told one command line after the other.

DRIVER = """
import json, os, sys
from agentrun.cli.command_line import run
answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    argv = json.loads(line)
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), fd)
    code = run(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    print(json.dumps([code, open("out").read(), open("err").read()]), file=answers, flush=True)
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def docs(self, is_one: bool) -> list[Any]:
        assert self.out == "" or self.out.endswith("\n")
        return [json.loads(self.out)] if is_one else [json.loads(line) for line in self.out.split("\n")[:-1]]


@pytest.fixture
def ask(home: Home, tmp_path: Path) -> Iterator[Callable[..., Answer]]:
    directory = tmp_path / "driver"
    directory.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    argv = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(argv, env=home.env, cwd=directory, text=True, **pipes) as driver:
        assert driver.stdin
        assert driver.stdout

        def run(*argv: str) -> Answer:
            assert driver.stdin
            assert driver.stdout
            driver.stdin.write(json.dumps(["--json", *argv]) + "\n")
            driver.stdin.flush()
            return Answer(*json.loads(driver.stdout.readline()))

        yield run
        driver.stdin.close()


def story(home: Home) -> Iterator[tuple[str, list[str], int]]:
    """Each row of the page, a command line for it, and its exit code; in an order in which all of them can be."""
    yield "new", ["new", "one", "--id", "one"], 0
    yield "new --send", ["new", "two", "--id", "two", "--send", "hello"], 0
    yield "send", ["send", "one", "ask me", "--attach", "script.json"], 5
    yield "steer", ["steer", "one", "only new ones"], 0
    yield "show -f", ["show", "-f", "one"], 5
    yield "wait", ["wait", "one", "two"], 5
    yield "send", ["send", "one", "those of May"], 5
    yield "approve", ["approve", "one", "--note", "go on"], 0
    yield "wait", ["wait", "one"], 5
    yield "deny", ["deny", "one"], 0
    yield "wait", ["wait", "one"], 0
    yield "show SESSION", ["show", "one"], 0
    yield "show SESSION/RUN", ["show", "one/1", "--tail", "99"], 0
    yield "show --messages", ["show", "one", "--messages"], 0
    yield "show --operations", ["show", "one", "--operations"], 0
    yield "show --report", ["show", "one", "--report"], 0
    yield "show --timeline", ["show", "one", "--timeline"], 0
    yield "show --html", ["show", "one", "--html", str(home.path / "one.html")], 0
    yield "ls", ["ls"], 0
    yield "search", ["search", "ask me"], 0
    yield "send --detach", ["send", "one", "slowly", "--detach", "--ref", "run-1"], 0
    home.wait_for_event("one/run-2", "tool.remote_id")
    yield "cancel --op", ["cancel", "one", "--op", "op-2", "--wait"], 0
    yield "wait", ["wait", "one"], 0
    yield "send --detach", ["send", "one", "slowly", "--detach"], 0
    home.wait_for_event("one/run-3", "tool.remote_id")
    yield "cancel", ["cancel", "one", "--wait"], 0
    yield "reconcile", ["reconcile", "one"], 0
    yield "reconcile", ["reconcile", "one", "op-2", "--as", "failed", "--note", "looked"], 0
    home.open_gate()
    yield "resume", ["resume", "one"], 0
    yield "resume --detach", ["resume", "one/3", "--detach"], 0
    yield "wait", ["wait", "one"], 0
    yield "compact", ["compact", "one"], 0
    yield "recover", ["recover"], 0
    yield "rename", ["rename", "one", "another title"], 0
    yield "archive", ["archive", "one"], 0
    yield "unarchive", ["unarchive", "one"], 0
    yield "fork", ["fork", "one", "--at", "2"], 0
    yield "export", ["export", "one"], 0
    yield "export --output", ["export", "one/1", "--output", str(home.path / "one.json")], 0
    yield "export --output", ["export", "one", "--output", str(home.path / "one.tar")], 0
    yield "export --all", ["export", "--all", "--output", str(home.path / "all.tar")], 0
    yield "import", ["import", str(home.path / "one.tar"), "--as", "three"], 0
    (home.run_dir("two") / "report.md").write_text("not it")
    yield "check", ["check", "two"], 10
    yield "rm", ["rm", "two", "--yes"], 0
    yield "agents", ["agents"], 0
    yield "agents check", ["agents", "check", "analyst"], 0
    yield "config", ["config"], 0
    yield "completion", ["completion", "bash"], 0
    yield "--version", ["--version"], 0
    yield "--help", ["send", "--help"], 0
    yield "--help", [], 2


@pytest.fixture
def busy_home(home: Home) -> Home:
    """An agent with which everything can happen."""
    home.tool("read", "echo 12")
    home.tool("write", "echo done", effect="write")
    job = f'echo \'{{"remoteId": "job-7"}}\' >&3; {home.gate()}'
    home.tool("slow", job, effect="write", approve="auto", grace="0s")
    home.model(
        {"ifContains": "ask me", "text": "I look.", "calls": [{"name": "read"}]},
        {"ifContains": "ask me", "ask": "Which ones?"},
        {"ifContains": "those of May", "calls": [{"name": "write"}]},
        {"ifContains": "those of May", "calls": [{"name": "write"}]},
        {"ifContains": "only new ones", "calls": [{"name": "write"}]},
        {"ifContains": "only new ones", "calls": [{"name": "write"}]},
        {"ifContains": "slowly", "calls": [{"name": "slow"}]},
        {"text": "# A report"},
    )
    return home


@pytest.mark.slow
def test_every_line_of_every_command_is_what_the_page_says(busy_home: Home, ask: Callable[..., Answer]) -> None:
    tried, wrong = set(), []
    for name, argv, code in story(busy_home):
        argv = [str(busy_home.path / word) if word == "script.json" else word for word in argv]
        answer = ask(*argv)
        assert answer.code == code, (argv, answer)
        assert answer.err == "", argv
        row = ROWS[name]
        docs = answer.docs(row.is_one)
        wrong += [f"{name}: {fault}" for fault in line_faults(docs, row)]
        assert docs or name == "recover", argv
        tried.add(name)
    assert "\n".join(sorted(set(wrong))) == ""
    assert tried == set(ROWS)


def line_faults(docs: list[Any], row: Row) -> Iterator[str]:
    *firsts, rest = row.kinds
    for number, doc in enumerate(docs):
        yield from faults(doc, firsts[number] if number < len(firsts) else rest)


@pytest.mark.slow
def test_every_error_is_the_envelope_on_standard_error(home: Home, ask: Callable[..., Answer]) -> None:
    assert ask("new", "--id", "live-one").code == 0
    assert ask("new", "--id", "live-two").code == 0
    home.run("send", "live-one", "hello")
    path = home.session_dir("live-two") / "session.json"
    path.write_text("{")
    refused = [
        ("usage", ["nonsense"]),
        ("usage", ["send"]),
        ("usage", ["send", "live-one", "x", "--timeout", "soon"]),
        ("usage", ["show", "--root"]),
        ("usage", ["rm", "live-one"]),
        ("not_found", ["show", "nothing"]),
        ("not_found", ["show", "live"]),
        ("not_found", ["cancel", "live-one", "--op", "op-9"]),
        ("denied", ["show", "../x"]),
        ("damaged", ["show", "live-two"]),
        ("conflict", ["steer", "live-one", "late"]),
        ("conflict", ["cancel", "live-one"]),
        ("config", ["send", "live-one", "x", "--agent", "nobody"]),
    ]
    for code, argv in refused:
        answer = ask(*argv)
        assert (answer.code, answer.out) == (EXIT_CODES[code], ""), answer
        (line, end) = answer.err.split("\n")
        assert end == ""
        envelope = json.loads(line)
        assert faults(envelope, Kind("json.md", "error")) == [], argv
        assert envelope["error"]["code"] == code
    listed = ask("ls")
    assert listed.code == 0
    assert faults(json.loads(listed.err), Kind("json.md", "warning")) == []
