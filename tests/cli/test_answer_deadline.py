"""A question has a deadline that stands on disk: it survives whoever asked, and the next writer enforces it.

# covers A31 A61 B24 B45 B60
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import until

Home = Any

pytestmark = pytest.mark.slow
PROMPT = "\n>"


@pytest.fixture
def asks(home: Home) -> str:
    """A session whose agent asks, and waits for a moment only."""
    home.settings(agent='answer_timeout = "1s"')
    home.model({"ifContains": "analyse", "ask": "which?"}, {"text": "a report"})
    return str(home.new())


def _wait_until_overdue(home: Home, run: str) -> None:
    """Until its time is over; or until another command, late on a busy machine, has enforced that already."""
    until(lambda: (view := home.view(run))["overdue"] or view["status"] == "timed_out", "the end of its time")


def _deadline(home: Home, run: str) -> str:
    (asked,) = home.events(run, "run.waiting_input")
    deadline = home.view(run)["waitingFor"]["deadline"]
    assert deadline == asked["payload"]["deadline"]
    return str(deadline)


def _is_timed_out(home: Home, run: str) -> None:
    home.wait_for_status(run, "timed_out")
    (asked,) = home.events(run, "run.cancel_requested")
    assert (asked["payload"]["intent"], asked["payload"]["via"]) == ("timeout", "answer_timeout")
    assert asked["payload"]["actor"]["user"] == "deadline"


def test_an_answer_after_it_is_refused_and_the_run_has_timed_out(home: Home, asks: str) -> None:
    assert home.run("send", asks, "analyse").code == 5
    run = f"{asks}/run-1"
    _wait_until_overdue(home, run)
    # Readers say so and change nothing.
    assert "overdue" in home.run("show", run).text
    assert home.status(run) == "waiting_input"
    late = home.run("send", asks, "those of May")
    assert (late.code, late.out) == (7, b"")
    assert "has ended (timed_out)" in late.said
    _is_timed_out(home, run)
    assert [message["mode"] for message in home.messages(asks)] == ["prompt", "question", "ended"]
    assert home.run("send", asks, "again").text == "a report\n"


def test_an_approval_after_it_is_refused_too(home: Home) -> None:
    home.settings(agent='answer_timeout = "1s"')
    home.tool("export", f"touch {home.path}/exported", effect="write", approve="ask")
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    session = home.new()
    assert home.run("send", session, "export it").code == 5
    _wait_until_overdue(home, f"{session}/run-1")
    assert home.run("approve", session).code == 7
    _is_timed_out(home, f"{session}/run-1")
    assert not (home.path / "exported").exists()


def test_whoever_stays_on_a_terminal_enforces_it(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    assert terminal.end() == 4
    _is_timed_out(home, f"{asks}/run-1")


@pytest.mark.parametrize("leave", ["Ctrl-D", "kill -9"])
def test_it_survives_the_process_that_asked(home: Home, leave: str) -> None:
    home.settings(agent='answer_timeout = "1h"')
    home.model({"ask": "which?"}, {"text": "a report"})
    session = home.new()
    run = f"{session}/run-1"
    terminal = home.terminal("send", session, "analyse")
    terminal.wait_for(PROMPT)
    deadline = _deadline(home, run)
    if leave == "Ctrl-D":
        terminal.press_ctrl("d")
        assert terminal.end() == 5
    else:
        terminal.process.kill()
        terminal.end()
    view = home.view(run)
    assert (view["status"], view["executor"], view["overdue"]) == ("waiting_input", "none", False)
    assert _deadline(home, run) == deadline
    assert home.run("send", session, "those of May").code == 0
    assert home.status(run) == "completed"


def test_a_process_that_died_while_asking_leaves_a_deadline_that_is_enforced(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    terminal.process.kill()  # if it is still there: on a slow machine it has enforced it itself
    terminal.end()
    _wait_until_overdue(home, f"{asks}/run-1")
    assert home.run("send", asks, "again", "--mode", "prompt").text == "a report\n"
    _is_timed_out(home, f"{asks}/run-1")


@pytest.mark.parametrize("way", ["foreground", "detached"])
def test_who_waits_behind_the_question_gets_his_turn(home: Home, asks: str, way: str) -> None:
    assert home.run("send", asks, "analyse").code == 5
    if way == "foreground":
        # Nobody else comes by: the process that waits enforces it.
        assert home.run("send", asks, "again", "--if-busy", "queue").text == "a report\n"
    else:
        home.detach(asks, "again", "--if-busy", "queue")
        _wait_until_overdue(home, f"{asks}/run-1")
        assert home.run("approve", asks).code == 7
        home.wait_for_status(f"{asks}/run-2", "completed")
    _is_timed_out(home, f"{asks}/run-1")


def test_what_was_meant_as_an_answer_begins_no_run_once_the_cancel_file_lies_there(home: Home) -> None:
    home.model({"ifContains": "analyse", "ask": "which?"}, {"text": "a report"})
    session = str(home.new())
    run = f"{session}/run-1"
    assert home.run("send", session, "analyse").code == 5
    (home.run_dir(run) / "cancel").touch()
    late = home.run("send", session, "those of May")
    assert (late.code, late.out) == (7, b"")
    assert "has ended (cancelled)" in late.said
    assert [message["mode"] for message in home.messages(session)] == ["prompt", "question", "ended"]
    assert home.run("send", session, "again").text == "a report\n"
