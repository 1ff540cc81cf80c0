"""Ctrl-C once and twice, SIGTERM, a terminal that is closed: the exit code, and the state on disk that matches it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def tooled(home: Home) -> str:
    """A session whose agent calls a tool that has children, one of them in a session of its own."""
    home.tool("work", f"setsid sleep 60 & sleep 60 & {home.gate()}")
    home.model({"text": "working", "calls": [{"name": "work"}]}, {"text": "a report"})
    return str(home.new())


@pytest.mark.parametrize("way", ["pipe", "terminal"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_winds_down_and_the_code_says_which(home: Home, tooled: str, way: str, number: int) -> None:
    sending = (home.start if way == "pipe" else home.terminal)("send", tooled, "analyse")
    home.wait_for_event(tooled, "tool.started")
    os.kill(sending.pid, number)
    ended = sending.end()
    assert (ended if way == "terminal" else ended.code) == SIGNALS[signal.Signals(number)]
    assert home.status(tooled) == "cancelled"
    assert home.marked(tooled) == []
    (asked,) = home.events(tooled, "run.cancel_requested")
    assert asked["payload"]["intent"] == "signal"
    assert asked["payload"]["via"] == "signal"
    assert asked["payload"]["actor"]["pid"] == sending.pid
    (finished,) = home.events(tooled, "tool.finished")
    assert finished["payload"]["status"] == "cancelled"
    assert home.run("send", tooled, "again", "--detach").code == 0
    home.wait_for_event(f"{tooled}/run-2", "tool.started")
    assert home.run("cancel", tooled, "--wait").code == 0


def test_ctrl_c_on_the_terminal_cancels(home: Home, tooled: str) -> None:
    terminal = home.terminal("send", tooled, "analyse")
    home.wait_for_event(tooled, "tool.started")
    terminal.press_ctrl("c")
    assert terminal.end() == 130
    assert "Ctrl-C" in terminal.text
    assert f"{tooled}/run-1  ■ cancelled" in terminal.text
    assert home.marked(tooled) == []


@pytest.mark.parametrize("way", ["pipe", "terminal"])
def test_ctrl_c_twice_leaves_at_once_and_the_next_command_winds_down(home: Home, way: str) -> None:
    home.tool("stubborn", f"trap '' TERM INT; {home.gate()}", grace="30s")
    home.model({"calls": [{"name": "stubborn"}]}, {"text": "never"})
    session = home.new()
    sending = (home.start if way == "pipe" else home.terminal)("send", session, "analyse")
    home.wait_for_event(session, "tool.started")
    os.kill(sending.pid, signal.SIGINT)
    home.wait_for_event(session, "run.cancel_requested")
    pressed = time.monotonic()
    os.kill(sending.pid, signal.SIGINT)
    ended = sending.end()
    assert time.monotonic() - pressed < 1.0
    assert (ended if way == "terminal" else ended.code) == 130
    view = home.view(f"{session}/1")
    assert (view["status"], view["executor"]) == ("cancelling", "lost")
    if way == "pipe":
        assert home.run("cancel", session, "--wait").code == 0
    else:
        home.open_gate()
        assert home.run("send", session, "more").code == 0
        assert home.status(f"{session}/run-2") == "completed"
    assert home.status(session) == "cancelled"
    assert home.marked(session) == []


def test_a_terminal_that_is_closed_ends_the_run_and_its_tools(home: Home, tooled: str, until: Until) -> None:
    terminal = home.terminal("send", tooled, "analyse")
    terminal.wait_for("work")
    terminal.hang_up()
    assert terminal.end() == 129
    assert home.status(tooled) == "cancelled"
    assert home.marked(tooled) == []
    (asked,) = home.events(tooled, "run.cancel_requested")
    assert "terminal was closed" in asked["payload"]["reason"]


def test_a_terminal_that_is_closed_at_a_question_ends_the_run(home: Home) -> None:
    home.model({"ask": "which?"}, {"text": "a report"})
    session = home.new()
    terminal = home.terminal("send", session, "analyse")
    terminal.wait_for("\n>")
    terminal.hang_up()
    assert terminal.end() == 129
    assert home.status(session) == "cancelled"


def test_a_run_that_is_told_not_to_hear_of_its_terminals_end_goes_on(home: Home, tooled: str) -> None:
    nohup = "trap '' HUP"
    terminal = home.terminal("send", tooled, "analyse", redirected=f"; {nohup}")
    terminal.wait_for("work")
    terminal.hang_up()
    assert home.view(f"{tooled}/1")["status"] == "running"
    home.open_gate()
    home.wait_for_status(tooled, "completed")
    assert terminal.end() == 0


def test_a_background_job_of_a_script_does_not_hear_ctrl_c(home: Home, tooled: str) -> None:
    done = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", *home.argv("send", tooled, "analyse")],
        env=home.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with done:
        home.wait_for_event(tooled, "tool.started")
        # As a terminal sends it: to the whole group. The shell itself ends of it.
        os.kill(home.executor(tooled), signal.SIGINT)
        home.open_gate()
        home.wait_for_status(tooled, "completed")


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_any_moment_leaves_a_code_and_a_state_that_agree(home: Home, number: int) -> None:
    """From before the acceptance to after the end; nothing is left that a next command could not go on with."""
    home.tool("work", "sleep 0.05")
    turns = [{"text": "one two", "delayMs": 10, "calls": [{"name": "work"}]}, {"text": "a report", "delayMs": 10}]
    home.model(*turns)
    begun = time.monotonic()
    assert home.run("send", home.new(), "analyse").code == 0
    whole = time.monotonic() - begun
    seen = set()
    for step in range(12):
        session = home.new()
        sending = home.start("send", session, "analyse")
        time.sleep(whole * step / 8)
        sending.signal(number)
        ended = sending.end()
        messages = home.messages(session)
        if not messages:
            # Python's own start may have been hit, which has words and a code of its own for it.
            assert ended.code != 0
            continue
        assert ended.code in (0, SIGNALS[signal.Signals(number)]), ended
        assert b"Traceback" not in ended.err
        view = home.view(f"{session}/1")
        seen.add(view["status"])
        if ended.code == 0:
            assert view["status"] == "completed"
            assert ended.out == b"a report\n"
        else:
            assert view["status"] in ("cancelled", "completed", "queued"), view["status"]
        again = home.run("cancel", session, "--wait")
        assert again.code in (0, 7), again.said
        assert home.run("send", session, "again").code == 0
    assert {"cancelled", "completed"} <= seen
