"""The line of an input is damaged after it has reached its run: the run goes on, and nothing hides it.

# covers promises 2 and 13. case C1
"""

from __future__ import annotations

from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow

WAITING, DONE, DAMAGED = 5, 0, 10


def overwrite(home: Home, session: str, number: int) -> None:
    """NUL bytes over message `number`."""
    path = home.session_dir(session) / "messages.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = bytes(len(lines[number - 1]))
    path.write_bytes(b"\n".join(lines))


@pytest.fixture
def session(home: Home) -> str:
    """A session with a run that waits for the second answer: messages 1 and 3 are what it was told."""
    home.model(
        {"ask": "which week?"},
        {"ask": "which year?"},
        {"text": "a report"},
    )
    session = str(home.new())
    assert home.run("send", session, "go").code == WAITING
    assert home.run("send", session, "week 12").code == WAITING
    return session


@pytest.mark.parametrize("number", [1, 3])
def test_a_run_whose_input_was_damaged_goes_on_and_is_found(home: Home, session: str, number: int) -> None:
    overwrite(home, session, number)
    assert home.run("check", session).code == DAMAGED
    (shown,) = home.run("show", session, "--json").docs
    assert [(run["runId"], run["status"]) for run in shown["runs"]] == [("run-1", "waiting_input")]
    sent = home.run("send", session, "2026")
    assert sent.code == DONE, sent.said
    (shown,) = home.run("show", session, "--json").docs
    assert [(run["runId"], run["status"]) for run in shown["runs"]] == [("run-1", "completed")]
    assert home.run("show", session, "--report").text == "a report\n", "a name alone means the newest run"
    assert "run-1" in home.run("ls", "--json").text


def test_the_model_is_told_that_it_cannot_be_read(home: Home) -> None:
    home.tool("write", "true", effect="write", approve="ask")
    told = {"ifContains": "(message 3) cannot be read any more", "text": "what you said is gone"}
    home.model({"ask": "which week?"}, {"calls": [{"name": "write"}]}, told, {"text": "a guess"})
    session = home.new()
    assert home.run("send", session, "go").code == WAITING
    assert home.run("send", session, "week 12").code == WAITING
    overwrite(home, session, 3)
    assert home.run("approve", session).code == DONE
    assert home.wait_for_status(session, "completed")
    assert home.run("show", session, "--report").text == "what you said is gone\n"
