"""A run that goes on without its terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from tests.cli.conftest import is_gone, until

Home = Any

pytestmark = pytest.mark.slow


@pytest.fixture
def working(home: Home) -> str:
    """A session whose agent works in a tool until the gate opens."""
    home.tool("work", home.gate())
    home.model({"text": "working", "calls": [{"name": "work"}]}, {"text": "a report"})
    return str(home.new())


def test_it_survives_its_terminal(home: Home, working: str) -> None:
    # covers A40 A41 B40
    terminal = home.terminal("send", working, "analyse", "--detach")
    terminal.wait_for(f"{working}/run-1")
    home.wait_for_event(working, "tool.started")
    terminal.hang_up()
    terminal.end()
    assert home.view(f"{working}/1")["executor"] == "alive"
    home.open_gate()
    home.wait_for_status(working, "completed")


def test_what_every_user_of_the_machine_sees_of_it_names_no_session(home: Home, working: str) -> None:
    # covers A21 A24
    run = home.detach(working, "analyse")
    home.at_gate()
    executor = home.executor(run)
    command = Path(f"/proc/{executor}/cmdline").read_bytes()
    assert b"agentrun.cli.detached" in command
    assert working.encode() not in command
    # Nor does what it starts inherit what tells it.
    environments = []
    for pid in home.marked(working):
        with suppress(OSError):  # what the tool has started for a moment
            environments.append(Path(f"/proc/{pid}/environ").read_bytes())
    assert any(environments)
    assert not any(b"AGENTRUN_DETACHED_RUN" in each for each in environments)


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):  # it has ended just now
        for each in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it closed it just now
                found.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    return found


def test_it_belongs_to_no_terminal_and_holds_none_of_its_files(home: Home, working: str) -> None:
    run = home.detach(working, "analyse")
    home.at_gate()
    executor = home.executor(run)
    fields = Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()
    session_id, terminal = int(fields[3]), int(fields[4])
    assert (session_id, terminal) == (executor, 0)
    for number in range(3):
        assert os.readlink(f"/proc/{executor}/fd/{number}") == "/dev/null"
    # Its tools do not hold its lock.
    held = str(home.run_dir(run))
    assert held in _open_files(executor)
    tools = [_open_files(pid) for pid in home.marked(working)]
    assert any(tools)
    assert not any(held in each for each in tools)
    home.open_gate()
    home.wait_for_status(run, "completed")


WITHOUT_STREAMS = """
import os, sys
from agentrun import open_tree
from agentrun.commands import control, execution
from agentrun.commands.names import find

tree = open_tree()
saying = control.Saying(control.said("analyse", None), lambda: execution.make_order(tree.place, None, None))
acceptance = control.say(tree.place, find(tree.place.tree, sys.argv[1]), saying)
os.dup2(acceptance.liveness, int(sys.argv[2]))
os.close(acceptance.liveness)
execution.start_detached(tree.place, sys.argv[1], "run-1", int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", ["0", "2", "3"])
def test_its_lock_reaches_it_from_a_process_without_standard_streams(home: Home, working: str, number: str) -> None:
    """Whatever number it has there: a program that uses the library may have closed any."""
    # covers promise 4
    subprocess.run(
        [sys.executable, "-c", WITHOUT_STREAMS, working, number], env=home.env, check=True, timeout=60,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    home.at_gate()
    assert home.view(f"{working}/1")["executor"] == "alive"
    home.open_gate()
    assert home.wait_for_status(working, "completed")


def test_it_is_never_taken_for_lost_between_acceptance_and_end(home: Home) -> None:
    home.tool("work", "sleep 0.2")
    home.model({"calls": [{"name": "work"}]}, {"text": "a report"})
    session = home.new()
    for number in range(1, 4):
        sending = home.start("send", session, "analyse", "--detach")
        seen: list[tuple[str, str]] = []
        while not seen or seen[-1][0] != "completed":
            shown = home.run("show", f"{session}/{number}", "--json")
            if shown.code == 8:
                continue
            run = shown.docs[0]["run"]
            seen.append((run["status"], run["executor"]))
        assert sending.end().code == 0
        # `none` only at the very first: the prompt is stored, and its acceptance goes on under the lock.
        executors = [executor for status, executor in seen if status != "completed"]
        assert executors == sorted(executors, key=lambda each: each != "none"), seen
        assert set(executors) <= {"none", "alive"}, seen
        assert ("running", "none") not in seen


def test_sigterm_hands_over(home: Home, working: str) -> None:
    run = home.detach(working, "analyse")
    home.at_gate()
    os.kill(home.executor(run), signal.SIGTERM)
    home.wait_for_status(run, "reconciling")
    (reconciling,) = home.events(run, "run.reconciling")
    assert reconciling["payload"]["reason"] == "shutdown"
    assert home.events(run)[-1]["type"] == "run.lease_released"
    assert home.events(run, "run.cancel_requested") == []
    assert not (home.run_dir(run) / "cancel").exists()
    assert home.marked(working) == []
    until(lambda: home.view(run)["executor"] == "lost", "its executor having left")
    assert home.view(run)["status"] == "reconciling"
    assert home.run("show", "-f", run).code == 6
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(run) == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_wind_it_down(home: Home, working: str, number: int) -> None:
    run = home.detach(working, "analyse")
    home.at_gate()
    os.kill(home.executor(run), number)
    home.wait_for_status(run, "cancelled")
    assert home.marked(working) == []


def test_a_killed_executor_is_noticed_and_its_run_can_be_ended(home: Home, working: str) -> None:
    run = home.detach(working, "analyse")
    home.at_gate()
    watching = home.terminal("show", "-f", run)
    watching.wait_for("op-2  work")
    os.kill(home.executor(run), signal.SIGKILL)
    assert watching.end() == 6
    assert "its executor is gone" in watching.text
    assert f"agentrun cancel {run}" in watching.text
    listed = home.run("ls").text
    assert "lost" in listed
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked(working) == []
    assert home.run("send", working, "again", "--detach").code == 0
    home.open_gate()
    home.wait_for_status(f"{working}/run-2", "completed")


def _removed(home: Home, run: str) -> None:
    session = home.session_dir(run)

    def remove() -> bool:
        shutil.rmtree(session, ignore_errors=True)  # its lease may just be renewed there
        return not session.exists()

    until(remove, "the directory being gone")


def _handed_over(home: Home, run: str) -> None:
    os.kill(home.executor(run), signal.SIGTERM)


def _taken_over(home: Home, run: str) -> None:
    """As from another machine: its next write finds a higher generation."""
    session = Tree(str(home.root), home.session_dir(run).parent.parent.name).session(run.partition("/")[0])
    with writing(session) as writer:
        session.run("run-1").take_over(writer, lease_seconds=600.0)


@pytest.mark.parametrize("leaving", [_removed, _handed_over, _taken_over])
def test_an_executor_that_leaves_its_run_in_the_middle_leaves_no_process_of_it(
    home: Home, leaving: Callable[[Home, str], None]
) -> None:
    """Not even one that a call left behind which has ended, and that nobody else could find any more."""
    # covers A46 B30
    home.tool("leave", f"env -i setsid sleep 60 <&- >&- 2>&- & echo $! >'{home.path}/daemon'")
    home.tool("work", home.gate())
    home.model({"calls": [{"name": "leave"}]}, {"calls": [{"name": "work"}]}, {"text": "a report"})
    run = home.detach(home.new(), "analyse")
    home.at_gate()
    executor, daemon = home.executor(run), int((home.path / "daemon").read_text())
    until(lambda: Path(f"/proc/{daemon}/comm").read_text() == "sleep\n", "its being what it was started for")
    assert Path(f"/proc/{daemon}/environ").read_bytes() == b"", "its environment is gone"
    leaving(home, run)
    until(lambda: is_gone(executor), "its executor has gone")
    assert is_gone(daemon)
    assert home.marked() == []


def test_two_detached_runs_in_one_session_come_after_each_other(home: Home, working: str) -> None:
    run = home.detach(working, "analyse")
    home.wait_for_event(run, "tool.started")
    assert home.run("send", working, "again", "--mode", "prompt", "--detach").code == 7
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert home.detach(working, "again") == f"{working}/run-2"
    home.wait_for_status(f"{working}/run-2", "completed")
