"""Signals at odd moments, ignored ones, a terminal that is closed: the exit code, and the state on disk that matches.

The signals themselves, once and twice, are rows of the table in test_endings.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def tooled(home: Home) -> str:
    """A session whose agent calls a tool that has children, one of them in a session of its own, and waits."""
    home.tool("work", f"setsid sleep 60 & sleep 60 & {home.gate()}")
    home.model({"text": "working", "calls": [{"name": "work"}]}, {"text": "a report"})
    return str(home.new())


def test_a_terminal_that_is_closed_ends_the_run_and_its_tools(home: Home, tooled: str, until: Until) -> None:
    terminal = home.terminal("send", tooled, "analyse")
    home.at_gate()
    until(lambda: len(home.marked(tooled)) >= 3, "the tool and its children")
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("arguments", [["--detach"], []], ids=["detached", "nohup"])
def test_who_goes_on_without_its_terminal_waits_and_does_not_spin(
    home: Home, tooled: str, until: Until, arguments: list[str]
) -> None:
    """# case C24"""
    terminal = home.terminal("send", tooled, "analyse", *arguments, redirected="; trap '' HUP")
    home.at_gate()
    terminal.hang_up()
    pid = home.executor(tooled)

    def used() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def is_at_rest() -> bool:
        before = used()
        time.sleep(3)
        # In hundredths of a second. One that spins takes three hundred, or as many as a busy machine gives it.
        return used() - before <= 10

    until(is_at_rest, "its being at rest")
    assert home.view(f"{tooled}/1")["executor"] == "alive"
    home.open_gate()
    home.wait_for_status(tooled, "completed")
    assert [event["type"] for event in home.events(tooled)].count("run.finished") == 1
    terminal.end()


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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("way", ["pipe", "terminal"])
def test_a_signal_at_any_moment_leaves_a_code_and_a_state_that_agree(home: Home, way: str, number: int) -> None:
    """At 20 moments, from before the acceptance to after the end; a next command can always go on with what is left."""
    # case C23
    home.tool("work", "sleep 0.05")
    home.tool("hold", home.gate())
    home.model(
        {"ifContains": "hold", "calls": [{"name": "hold"}]},
        {"text": "one two", "delayMs": 10, "calls": [{"name": "work"}]},
        {"text": "a report", "delayMs": 10},
    )
    begun = time.monotonic()
    assert home.run("send", home.new(), "analyse").code == 0
    whole = time.monotonic() - begun
    for step in range(20):
        _is_ended_by(home, way, number, "analyse", lambda run, step=step: time.sleep(whole * step / 14))
    # What each of the two ends is, whatever the others came to.
    assert _is_ended_by(home, way, number, "hold", lambda run: home.wait_for_event(run, "tool.started")) == "cancelled"
    assert _is_ended_by(home, way, number, "analyse", lambda run: home.wait_for_status(run, "completed")) == "completed"


def _is_ended_by(home: Home, way: str, number: int, text: str, moment: Callable[[str], object]) -> str | None:
    """The status of a run whose sender gets the signal at the moment; None if there is no run."""
    session = home.new()
    end = (_in_a_pipe if way == "pipe" else _on_a_terminal)(home, session, text, number, moment)
    if not home.messages(session):
        # Python's own start may have been hit, which has words and a code of its own for it.
        assert end.code != 0
        return None
    assert end.code in (0, SIGNALS[signal.Signals(number)]), end
    view = home.view(f"{session}/1")
    if end.code == 0:
        assert view["status"] == "completed"
        assert "a report" in end.said or number == signal.SIGHUP
        assert "Traceback" not in end.said
    else:
        assert view["status"] in ("cancelled", "completed", "queued"), view["status"]
    again = home.run("cancel", session, "--wait")
    assert again.code in (0, 7), again.said
    assert home.run("send", session, "again").code == 0
    return str(view["status"])


class End(NamedTuple):
    code: int
    said: str


def _in_a_pipe(home: Home, session: str, text: str, number: int, moment: Callable[[str], object]) -> End:
    sending = home.start("send", session, text)
    moment(f"{session}/run-1")
    sending.signal(number)
    ended = sending.end()
    assert ended.out == (b"a report\n" if ended.code == 0 else b""), ended
    return End(ended.code, ended.text + ended.said)


def _on_a_terminal(home: Home, session: str, text: str, number: int, moment: Callable[[str], object]) -> End:
    """By the keyboard and the window, where those send it."""
    sending = home.terminal("send", session, text)
    moment(f"{session}/run-1")
    if number == signal.SIGINT:
        sending.press_ctrl("c")
    elif number == signal.SIGHUP:
        sending.hang_up()
    else:
        sending.process.send_signal(number)
    return End(sending.end(), sending.text)
