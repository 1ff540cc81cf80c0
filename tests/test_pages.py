"""What the pages have to explain, and that what they say of a cancel is what is found on disk."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.states import RunStatus
from agentrun.store import layout
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from agentrun.testing.trees import Executor

DOCS = Path(__file__).resolve().parent.parent / "docs"
CANCEL = "## A cancel, step by step"


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    level, text = heading.split(" ")[0], (DOCS / page).read_text(encoding="utf-8")
    begin = text.index(f"\n{heading}\n")
    rest = text[begin + len(heading) + 2 :]
    return re.split(rf"^{level} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables, without their heads."""
    found: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        found += [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()[2:]]
    return found


def test_the_terms_come_first() -> None:
    # covers B4
    text = (DOCS / "lifecycle.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0] == "The terms"
    terms = " ".join(row[0] for row in rows(section("lifecycle.md", "## The terms")))
    for word in ("account", "session", "run", "turn", "operation", "event", "prompt", "steer", "follow-up", "answer",
                 "executor", "generation", "slot"):  # fmt: skip
        assert re.search(rf"\b{word}\b", terms), word


def test_each_file_is_compared_with_its_record_in_a_database() -> None:
    # covers A29
    text = section("format.md", "## Files or a database")
    assert "Take files" in text
    assert "Take a database" in text
    here = " ".join(row[0] for row in rows(text))
    names = {value for name, value in vars(layout).items() if name.isupper() and "PREFIX" not in name}
    # What only groups others, and what is kept for looking at, is no record.
    no_records = {layout.SESSIONS, layout.RUNS, layout.STALE}
    assert [name for name in sorted(names - no_records) if name not in here] == []


def test_a_cancel_is_described_as_it_is_found_on_disk(session: SessionDir) -> None:
    # covers B32
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool("op-2", "read")
    told = " ".join(row[-1] for row in rows(section("stopping.md", CANCEL)))
    trees.cancel(session, "run-1")
    # What steps 2 to 4 leave.
    run_dir = executor.run_dir
    assert run_dir.load().status is RunStatus.CANCELLING
    assert run_dir.directory.stat(layout.CANCEL) is not None
    executor.append(trees.E.TOOL_FINISHED, operationId="op-2", status="cancelled", attempt=1)
    executor.wind_down()
    every = [event.type for event in run_dir.all_events()]
    events = every[every.index("run.cancel_requested") :]
    described = [kind for kind in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", told) if kind in events]
    assert described[:1] == ["run.cancel_requested"]
    assert described[-1:] == ["run.finished"]
    assert described == sorted(described, key=events.index)
    # And the last steps: nobody holds the run or the slot, and the conversation says how it ended.
    assert run_dir.lease() is None
    assert session.active() is None
    assert session.tail(1)[0].mode == "ended"
    for name in (layout.CANCEL, layout.RUN, layout.LEASE, layout.ACTIVE, layout.MESSAGES):
        assert f"`{name}`" in told, name


def test_the_way_back_after_a_crash_is_described() -> None:
    # covers B39
    table = rows(section("lifecycle.md", "## After a crash"))
    steps = [row for row in table if len(row) == 3 and row[0] and row[2]]
    assert len(steps) >= 15
    told = " ".join(row[0] for row in steps)
    for word in ("run.started", "run.waiting_input", "run.input_received", "run.cancel_requested", "run.finished"):
        assert word in told, word


@pytest.mark.slow
def test_the_unit_of_the_service_is_one_that_systemd_takes(tmp_path: Path) -> None:
    # covers A58
    text = section("recovering.md", "### A service")
    begin = text.index("    [Unit]\n")
    unit = "\n".join(line[4:] for line in text[begin : text.index("WantedBy=default.target") + 23].splitlines())
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(unit)
    command = read["Service"]["ExecStart"].split()
    assert (Path(command[0]).name, command[1:]) == ("agentrun", ["recover", "--watch"])
    assert read["Service"]["KillMode"] == "process", "it would end the executors that it started"
    if shutil.which("systemd-analyze") is None:
        return
    path = tmp_path / "agentrun-recover.service"
    path.write_text(unit.replace(command[0], sys.executable) + "\n")
    verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert str(path) not in verified.stdout + verified.stderr, "systemd understands all of it"


def test_the_common_mistakes_are_listed_with_what_is_done_instead() -> None:
    # covers B55
    table = rows(section("lifecycle.md", "## Common mistakes, and what agentrun does instead"))
    assert len(table) >= 20
    assert all(len(row) == 2 and all(row) for row in table)


def test_who_stopped_what_and_how_it_ended_is_told_by_the_events_alone(session: SessionDir) -> None:
    # covers B49 B50 B51 B52 B53 B54 A74
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool("op-2", "write")
    with writing(session) as writer:
        assert executor.run_dir.current(writer).status is RunStatus.RUNNING
    trees.cancel(session, "run-1", reason="the wrong week")
    executor.wind_down()
    events = list(session.run("run-1").all_events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    asked = next(event for event in events if event.type == "run.cancel_requested")
    assert (asked.run_id, asked.payload["actor"]["user"], asked.payload["reason"]) == ("run-1", "ann", "the wrong week")
    started = {e.payload["operationId"]: e for e in events if e.type == "tool.started" and e.seq < asked.seq}
    finished = {e.payload["operationId"] for e in events if e.type == "tool.finished" and e.seq < asked.seq}
    (running,) = [event for name, event in started.items() if name not in finished]
    assert (running.payload["toolCallId"], running.payload["toolName"]) == ("call-op-2", "export")
    assert (events[-1].type, events[-1].payload["terminalStatus"]) == ("run.finished", "cancelled")


@pytest.mark.parametrize("end", ["failed", "completed"])
def test_after_an_end_the_session_tells_everything_and_goes_on(session: SessionDir, end: str) -> None:
    # covers A64 A65 A68 A71 A74
    executor = Executor(session, trees.accept(session, "first").run_id)
    executor.deliver()
    executor.ask_model()
    if end == "failed":
        executor.append(trees.E.RUN_FAILING, reason="the model is gone")
        executor.wind_down()
    else:
        executor.complete("the report\n")
    run = session.run("run-1").load()
    assert run.status.value == end
    assert session.tail(9)[0].text == "first"
    assert (session.run("run-1").report() is not None) == (end == "completed")
    before = list(session.run("run-1").all_events())
    assert trees.completed(session, "second") == "run-2"
    assert list(session.run("run-1").all_events()) == before
    assert session.newest_run_ids(5) == ["run-2", "run-1"]
