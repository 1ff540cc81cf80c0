"""`wait`: several runs at once, and the code of the first that does not complete.

# covers A31 A41 B21 B24
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow


@pytest.fixture
def held(home: Home) -> str:
    """A run that is held in a tool call until the gate opens."""
    home.tool("wait", home.gate())
    home.tool("other", home.gate("other"))
    home.model(
        {"ifContains": "hold", "calls": [{"name": "wait"}]},
        {"ifContains": "keep", "calls": [{"name": "other"}]},
        {"ifContains": "ask", "ask": "which?"},
        {"ifContains": "fail", "text": "It found {{op:nothing}}."},
        {"text": "a report"},
    )
    run = home.detach(home.new(), "hold")
    home.wait_for_event(run, "tool.started")
    return str(run)


def _begin(home: Home, text: str) -> str:
    run = home.detach(home.new(), text)
    if text in ("hold", "keep"):
        home.wait_for_event(run, "tool.started")
    return str(run)


def test_it_returns_when_all_have_completed_and_names_each_once(home: Home, held: str) -> None:
    over = _begin(home, "quick")
    waiting = home.start("wait", held, over, held)
    home.wait_for_status(over, "completed")
    assert not waiting.is_over
    home.open_gate()
    ended = waiting.end()
    assert (ended.code, ended.said) == (0, "")
    assert sorted(ended.text.splitlines()) == sorted([f"{over} completed", f"{held} completed"])


def test_a_session_means_its_active_run_and_at_last_works(home: Home, held: str) -> None:
    waiting = home.start("wait", held.partition("/")[0], "@last")
    home.open_gate()
    ended = waiting.end()
    assert (ended.code, ended.text) == (0, f"{held} completed\n")


def _is_cancelled(home: Home, run: str) -> None:
    assert home.run("cancel", run, "--wait").code == 0


def _is_killed(home: Home, run: str) -> None:
    os.kill(home.executor(run), signal.SIGKILL)


# How a run that is held ends, and what becomes of `wait` then: its code and the word for the run.
ENDS: dict[str, tuple[Callable[[Home, str], None], int, str]] = {
    "cancelled": (_is_cancelled, 3, "cancelled"),
    "lost": (_is_killed, 6, "reconciling"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_first_that_does_not_complete_gives_the_code_and_ends_the_waiting(home: Home, held: str, end: str) -> None:
    ending, code, word = ENDS[end]
    other = _begin(home, "keep")
    waiting = home.start("wait", other, held)
    ending(home, held)
    ended = waiting.end()
    assert (ended.code, ended.text) == (code, f"{held} {word}\n{other} running\n")
    home.open_gate("other")
    home.wait_for_status(other, "completed")


def test_a_failure_and_a_deadline_have_their_codes(home: Home, held: str) -> None:
    failing = _begin(home, "fail")
    assert home.run("wait", failing).code == 1
    assert home.run("wait", home.detach(home.new(), "keep", "--timeout", "100ms")).code == 4
    home.open_gate()
    assert home.run("wait", held).code == 0


def test_one_that_waits_for_the_user_is_5(home: Home, held: str) -> None:
    asking = _begin(home, "ask")
    ended = home.run("wait", held, asking)
    assert ended.code == 5
    assert f"{asking} waiting_input\n" in ended.text
    assert "answer with" in ended.said
    assert home.run("send", asking, "those of May", "--detach").code == 0
    assert home.run("wait", asking).code == 0
    home.open_gate()


def test_a_queued_run_is_waited_for(home: Home, held: str) -> None:
    queued = home.detach(held.partition("/")[0], "quick", "--if-busy", "queue")
    waiting = home.start("wait", queued)
    assert home.run("wait", queued, "--timeout", "0s").code == 124
    assert not waiting.is_over
    home.open_gate()
    ended = waiting.end()
    assert (ended.code, ended.text) == (0, f"{queued} completed\n")


@pytest.fixture
def unattended(home: Home) -> str:
    """A run that was accepted, and whose executor died before it had begun: it could open no files."""
    sent = home.shell('ulimit -n 14; agentrun send "$1" quick --detach', home.new())
    assert sent.code == 0, sent.said
    return str(sent.text.strip())


def test_a_queued_run_that_nobody_begins_is_told_as_such(home: Home, unattended: str, until: Until) -> None:
    # covers A58 B40
    until(lambda: home.view(unattended)["unattended"], "its executor has gone")
    assert home.view(unattended)["status"] == "queued"
    for arguments in (["show", unattended], ["show", unattended.partition("/")[0]]):
        shown = home.run(*arguments)
        assert f"agentrun resume {unattended}" in shown.text + shown.said
    assert home.run("resume", unattended).code == 0
    assert not home.view(unattended)["unattended"]


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_a_queued_run_that_nobody_begins_is_not_waited_for(home: Home, unattended: str) -> None:
    # Each looks at it for ten seconds: its executor may be on its way.
    for waiting in [home.start(*command, unattended) for command in (["wait"], ["show", "-f"])]:
        ended = waiting.end(90)
        assert ended.code == 6
        assert f"agentrun resume {unattended}" in ended.said


@pytest.fixture
def behind(home: Home, held: str, until: Until) -> str:
    """A run that is queued behind one whose executor was killed."""
    queued = home.detach(held.partition("/")[0], "quick", "--if-busy", "queue")
    assert home.view(queued)["lostAhead"] is None
    os.kill(home.executor(held), signal.SIGKILL)
    until(lambda: home.view(held)["executor"] == "lost", "its executor has gone")
    return str(queued)


def test_a_run_queued_behind_a_lost_one_says_so(home: Home, held: str, behind: str) -> None:
    # covers A58 B40
    assert home.view(behind)["status"] == "queued"
    assert home.view(behind)["lostAhead"] == "run-1"
    shown = home.run("show", behind)
    assert f"agentrun show {held}" in shown.text + shown.said
    assert home.run("cancel", held).code == 0
    home.wait_for_status(behind, "completed")
    assert home.view(behind)["lostAhead"] is None


# covers A58 A63
def test_a_run_queued_behind_a_frozen_one_is_waited_for_and_says_so(home: Home, held: str, until: Until) -> None:
    home.settings(top='lease = "1s"')
    frozen = _begin(home, "keep")
    executor = home.executor(frozen)
    queued = home.detach(frozen.partition("/")[0], "quick", "--if-busy", "queue")
    home.suspend(frozen, executor)
    until(lambda: home.view(queued)["frozenAhead"] == "run-1", "its lease runs out")
    for command in (["wait", queued], ["show", "-f", queued]):
        seen, said = home.start(*command), b""
        while f"behind {frozen}, whose executor does not respond".encode() not in said:
            more = os.read(seen.process.stderr.fileno(), 1 << 16)
            assert more, said
            said += more
        seen.signal(signal.SIGINT)
        seen.end()
    os.kill(executor, signal.SIGCONT)
    home.open_gate("other")
    assert home.run("wait", queued).code == 0
    assert home.view(queued)["frozenAhead"] is None
    home.open_gate()


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_a_run_queued_behind_a_lost_one_is_not_waited_for(home: Home, held: str, behind: str) -> None:
    # Each looks at it for ten seconds: somebody may be about to take up the run ahead.
    for waiting in [home.start(*command, behind) for command in (["wait"], ["show", "-f"])]:
        ended = waiting.end(90)
        assert ended.code == 6
        assert f"agentrun show {held}" in ended.said


def test_when_the_time_runs_out_it_says_which_are_not_over(home: Home, held: str) -> None:
    over = _begin(home, "quick")
    home.wait_for_status(over, "completed")
    ended = home.run("wait", held, over, "--timeout", "200ms")
    assert ended.code == 124
    assert ended.text == f"{over} completed\n{held} running\n"
    assert f"not over: {held}" in ended.said
    assert f"agentrun show -f {held}" in ended.said
    in_json = home.run("wait", held, "--timeout", "0s", "--json")
    assert (in_json.code, in_json.error["code"]) == (124, "timeout")
    assert home.run("wait", held, "--timeout", "soon").code == 2
    home.open_gate()


def test_json_has_one_object_for_each_run(home: Home, held: str) -> None:
    over = _begin(home, "quick")
    waiting = home.start("wait", held, over, "--json")
    home.wait_for_status(over, "completed")
    home.open_gate()
    ended = waiting.end()
    assert ended.code == 0
    assert sorted(f"{doc['sessionId']}/{doc['runId']}" for doc in ended.docs) == sorted([over, held])
    assert {(doc["status"], doc["executor"]) for doc in ended.docs} == {("completed", "none")}
    # `run.json` says so by now.
    assert home.status(held) == "completed"


def test_what_is_not_there_is_said_before_anything_is_waited_for(home: Home, held: str) -> None:
    empty = home.new()
    for name in ("nothing", empty, f"{held.partition('/')[0]}/7"):
        ended = home.run("wait", held, name)
        assert (ended.code, ended.out) == (8, b"")
    assert home.run("wait").code == 2
    home.open_gate()


def test_ctrl_c_ends_the_waiting_and_nothing_else(home: Home, held: str, until: Until) -> None:
    terminal = home.terminal("wait", held)
    until(lambda: _waits(terminal.pid), "it waiting")
    terminal.press_ctrl("c")
    assert terminal.end() == 130
    assert home.view(held)["executor"] == "alive"
    home.open_gate()
    home.wait_for_status(held, "completed")


def _waits(pid: int) -> bool:
    """Whether it is where it waits for the kernel to say that something changed."""
    if any(_opened(pid, number) == "anon_inode:inotify" for number in os.listdir(f"/proc/{pid}/fd")):
        return True
    # A user has so many of them on the whole machine; without one it looks ten times a second (inotify(7)).
    ours: int = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
    if ours < 0:
        pytest.skip("others use all that the kernel grants this user to be told of changes")
    os.close(ours)
    return False


def _opened(pid: int, number: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except FileNotFoundError:  # just closed
        return ""


def test_waiting_costs_next_to_no_time_of_the_processor(home: Home, held: str, until: Until) -> None:
    others = [_begin(home, "keep") for _ in range(2)]
    waiting = home.start("wait", held, *others)

    def used() -> int:
        with open(f"/proc/{waiting.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    until(lambda: _waits(waiting.pid), "it waiting")
    before, switches, begun = used(), _switches(waiting.pid), time.monotonic()
    home.run("wait", held, "--timeout", "3s")
    # It looks once a second, and looking costs milliseconds; this one took longer than three seconds on a busy machine.
    looks = 1 + time.monotonic() - begun
    assert used() - before <= 5 * looks
    assert _switches(waiting.pid) - switches <= 10 * looks
    home.open_gate()
    home.open_gate("other")
    assert waiting.end().code == 0


def _switches(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("voluntary_ctxt_switches")]
    return int(line.split()[1])
