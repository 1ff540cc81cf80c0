"""The quick path and typer are one program: the same bytes, the same files, the same exit codes.

Both are called in this process, each on a copy of one tree. Typer gets the line that the quick path takes with
`--no-color` in front, which changes nothing here, and which the quick path does not know. That the quick path loads no
parser is in `test_loading`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.cli import command_line, quick
from agentrun.store.locks import is_executor_alive
from agentrun.store.tree import Tree
from agentrun.testing import trees
from tests.cli.conftest import Home, until

DONE, WAITING, IDLE = "session-done", "session-waiting", "session-idle"
LONG_AGO = "2020-01-02T03:04:05.678Z"
ODD = "figures, \u30e9\u30a4\u30d6 \u202e \x1b[31mred"
TIMES = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# What differs from one call to the next, whoever makes it.
CHANCE = [
    (TIMES, "TIME"),
    (re.compile(r"session-1[0-9a-z]{15}"), "SESSION"),
    (re.compile(r'"pid": ?\d+'), "PID"),
    (re.compile(r'"startTime": ?"?[\d.]+"?'), "START"),
    (re.compile(r'"(executingMs|expiresAt|timeoutAt)": ?[^,}\n]+'), "SPENT"),
    # How long ago the template's sessions were changed, which becomes another number between two calls once an hour.
    (re.compile(r"\b\d{4}d\b( \d+h)?"), "AGE"),
]


class Stages(NamedTuple):
    """A home, and the tree of which each command gets a copy as its root."""

    home: Home
    template: Path


class Told(NamedTuple):
    """How a command ended: its code, what it said, and what the tree is then, without what chance makes of it."""

    code: int
    out: str
    err: str
    files: dict[str, str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a session that is done, one that waits for an answer, and one in which nothing was said."""
    root = tmp_path_factory.mktemp("template") / "root"
    tree = Tree(str(root))
    trees.completed(tree.create_session(title=ODD, session_id=DONE))
    waiting = tree.create_session(title="a question", session_id=WAITING)
    executor = trees.Executor(waiting, trees.accept(waiting).run_id)
    executor.deliver()
    executor.ask()
    executor.die()
    tree.create_session(session_id=IDLE)
    for path in root.rglob("*"):
        if path.is_file():
            path.write_text(TIMES.sub(LONG_AGO, path.read_text("utf-8")), "utf-8")
    return root


@pytest.fixture
def stages(home: Home, template: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """What commands are called on."""
    for name in ("NO_COLOR", "AGENTRUN_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in home.env.items():
        monkeypatch.setenv(name, value)
    return Stages(home, template)


def told(stages: Stages, argv: list[str], *, terminal: bool = False) -> Told:
    """Runs a command line in a fresh copy of the tree."""
    shutil.rmtree(stages.home.root, ignore_errors=True)
    shutil.copytree(stages.template, stages.home.root, symlinks=True)
    kept, streams = (os.dup(1), os.dup(2)), (sys.stdout, sys.stderr)
    ends = [os.openpty() if terminal else os.pipe() for _ in (1, 2)]
    for fd, (_, writing) in zip((1, 2), ends, strict=True):
        os.dup2(writing, fd)
        os.close(writing)
    sys.stdout, sys.stderr = (open(fd, "w", encoding="utf-8", closefd=False) for fd in (1, 2))  # noqa: SIM115 - fd 1, 2
    try:
        code = command_line.run(argv)
    finally:
        sys.stdout, sys.stderr = streams
        for fd, before in zip((1, 2), kept, strict=True):
            os.dup2(before, fd)
            os.close(before)
    out, err = (_read_all(reading) for reading, _ in ends)
    return Told(code, out, err, _files(stages.home))


def _read_all(fd: int) -> str:
    data = b""
    while True:
        try:
            more = os.read(fd, 1 << 16)
        except OSError:  # the other end of a terminal is gone
            more = b""
        if not more:
            os.close(fd)
            return _without_chance(data.decode("utf-8"))
        data += more


def _files(home: Home) -> dict[str, str]:
    """What lies in the tree once nobody works on it any more."""
    until(lambda: not _is_executed(home), "the end of the executor")
    found = {
        _without_chance(str(path.relative_to(home.root))): _without_chance(path.read_text("utf-8"))
        for path in sorted(home.root.rglob("*"))
        if path.is_file()
    }
    assert found
    return found


def _is_executed(home: Home) -> bool:
    """Whether a run was handed to an executor that is not gone yet."""
    session = Tree(str(home.root)).session(DONE)
    runs = [session.run(run_id) for run_id in session.run_ids()]
    return any(not run.load().is_over or is_executor_alive(run.directory) for run in runs)


def _without_chance(text: str) -> str:
    for pattern, instead in CHANCE:
        text = pattern.sub(instead, text)
    return text


FORMS = {
    ("show", DONE): 0,
    ("show", "done"): 0,
    ("show", f"{WAITING}/1"): 0,
    ("show", "@last"): 0,
    ("show", IDLE): 0,
    ("show", "session"): 8,
    ("show", "nothing"): 8,
    ("show", f"{DONE}/run-9"): 8,
    ("show", "../../etc"): 9,
    ("show", ""): 2,
    ("show", DONE, "--messages", "--tail", "1"): 0,
    ("show", DONE, "--messages", "--tail", "9"): 0,
    ("show", "nothing", "--messages", "--tail", "1"): 8,
    ("ls",): 0,
    ("new", "a title"): 0,
    ("new", ODD): 0,
    ("new", ""): 0,
    ("send", DONE, "again", "--detach"): 0,
    ("send", DONE, " ", "--detach"): 2,
    ("send", "nothing", "go", "--detach"): 8,
    ("steer", DONE, "not so"): 7,
    ("steer", WAITING, "not so"): 0,
    ("steer", IDLE, "not so"): 7,
    ("steer", IDLE, ""): 2,
    ("cancel", WAITING): 0,
    ("cancel", DONE): 7,
    ("cancel", IDLE): 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("argv", FORMS, ids=" ".join)
def test_each_form_says_and_does_the_same_as_typer(stages: Stages, argv: tuple[str, ...]) -> None:
    quickly = told(stages, [*argv])
    assert quickly.code == FORMS[argv]
    parsed = told(stages, ["--no-color", *argv])
    assert quickly._replace(files={}) == parsed._replace(files={})
    assert quickly.files.keys() == parsed.files.keys()
    for name, text in quickly.files.items():
        assert text == parsed.files[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [("show", DONE), ("show", DONE, "--messages", "--tail", "2"), ("ls",), ("cancel", WAITING), ("steer", "x", "y")],
    ids=" ".join,
)
def test_a_terminal_is_shown_the_same(stages: Stages, argv: tuple[str, ...]) -> None:
    shown = told(stages, [*argv], terminal=True)
    assert shown.out + shown.err != ""
    # `--account` is the other option that changes nothing: without colour there would be less to compare.
    account = next((stages.template / "accounts").iterdir()).name
    assert shown == told(stages, ["--account", account, *argv], terminal=True)


@pytest.mark.parametrize(
    "argv",
    [
        [], ["--help"], ["show"], ["show", "--help"], ["show", "-f"], ["show", "a", "--raw"], ["show", "a", "b"],
        ["show", "a", "--messages"], ["show", "a", "--tail", "3"], ["show", "a", "--tail", "3", "--messages"],
        ["show", "a", "--messages", "--tail", "0"], ["show", "a", "--messages", "--tail", "-1"],
        ["show", "a", "--messages", "--tail", "3x"], ["show", "a", "--messages", "--tail", "\u0663"],
        ["show", "a", "--messages", "--tail", "9" * 20], ["ls", "x"], ["ls", "--json"], ["--json", "ls"],
        ["new"], ["new", "--id"], ["new", "a", "b"], ["send", "a", "b"], ["send", "a", "-", "--detach"],
        ["send", "--detach", "a", "b"], ["send", "--", "b", "--detach"], ["steer", "a", "-"], ["steer", "-a", "b"],
        ["cancel"], ["cancel", "a", "--wait"], ["cancel", "--", "a"], ["wait", "a"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_other_line_is_typers(argv: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTRUN_ROOT", str(tmp_path))
    assert quick.run(argv) is None
