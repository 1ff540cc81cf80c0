"""Questions and approvals: asked on the terminal right there, answered there or from anywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
PROMPT = "\n>"
APPROVE = "approve? [y/n]"


@pytest.fixture
def asks(home: Home) -> str:
    """A session whose agent asks first."""
    home.model({"ask": "Which products count as new?"}, {"text": "a report"})
    return str(home.new())


@pytest.fixture
def exports(home: Home) -> str:
    """A session whose agent writes, for which it needs an approval."""
    home.tool("export", f"echo done > {home.path}/exported; echo exported", effect="write")
    home.model({"calls": [{"name": "export", "arguments": {"day": "monday"}}]}, {"text": "a report"})
    return str(home.new())


def test_a_question_is_asked_and_answered_on_the_terminal(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    assert "Which products count as new?" in terminal.wait_for(PROMPT)
    assert home.status(asks) == "waiting_input"
    assert home.view(f"{asks}/1")["executor"] == "alive"
    terminal.type("those of May\n")
    assert terminal.end() == 0
    assert terminal.text.count("Which products count as new?") == 1
    assert [message["text"] for message in home.messages(asks)] == [
        "analyse",
        "Which products count as new?",
        "those of May",
        "a report",
    ]
    assert home.run_dir(asks).joinpath("report.md").read_text() == "a report"


def test_an_empty_line_is_no_answer(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    terminal.type("\n")
    terminal.wait_for(">\n>")
    terminal.type("  \n")
    terminal.type("those of May\n")
    assert terminal.end() == 0
    assert home.messages(asks)[2]["text"] == "those of May"


def test_an_answer_from_elsewhere_takes_the_prompt_away_and_the_run_goes_on(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    answered = home.run("send", asks, "those of May")
    assert (answered.code, answered.text) == (0, f"{asks}/run-1 3 answer\n")
    assert terminal.end() == 0
    assert "#3 answer" in terminal.text
    assert "a report" in terminal.text
    # Nothing stands behind the prompt that was open.
    assert [line for line in terminal.lines if line.startswith(">")] == [">"]
    assert len(home.messages(asks)) == 4


def test_ctrl_d_leaves_and_the_run_waits_for_anyone(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    terminal.press_ctrl("d")
    assert terminal.end() == 5
    assert f'agentrun send {asks} "your answer"' in terminal.text
    view = home.view(f"{asks}/1")
    assert (view["status"], view["executor"]) == ("waiting_input", "none")
    assert [event["type"] for event in home.events(asks)][-1] == "run.lease_released"
    answered = home.run("send", asks, "those of May")
    assert (answered.code, answered.text) == (0, f"{asks}/run-1 3 answer\n")
    assert home.status(asks) == "completed"


def test_ctrl_c_at_a_question_cancels(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    terminal.press_ctrl("c")
    assert terminal.end() == 130
    assert home.status(asks) == "cancelled"


def test_an_answer_that_is_no_utf8_keeps_its_bytes(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse")
    terminal.wait_for(PROMPT)
    terminal.type(b"caf\xe9\n".decode("utf-8", "surrogateescape"))
    assert terminal.end() == 0
    assert home.messages(asks)[2]["text"] == "caf\udce9"


def test_several_questions_in_a_row(home: Home) -> None:
    home.model({"ask": "first?"}, {"ask": "second?"}, {"text": "a report"})
    session = home.new()
    terminal = home.terminal("send", session, "analyse")
    terminal.wait_for(PROMPT)
    terminal.type("one\n")
    terminal.wait_for("second?\n>")
    terminal.type("two\n")
    assert terminal.end() == 0
    assert [event["payload"]["questionId"] for event in home.events(session, "run.waiting_input")] == [
        "question-1",
        "question-2",
    ]


def test_standard_input_that_is_no_terminal_is_not_asked(home: Home, asks: str) -> None:
    terminal = home.terminal("send", asks, "analyse", redirected="</dev/null")
    assert terminal.end() == 5
    assert home.status(asks) == "waiting_input"


def test_a_question_is_also_asked_where_only_the_report_goes_into_a_file(home: Home, asks: str) -> None:
    report = home.path / "report"
    terminal = home.terminal("send", asks, "analyse", redirected=f">{report}")
    terminal.wait_for(PROMPT)
    terminal.type("those of May\n")
    assert terminal.end() == 0
    assert report.read_text() == "a report\n"


# --- approvals


def test_an_approval_is_asked_on_the_terminal_right_there(home: Home, exports: str) -> None:
    terminal = home.terminal("send", exports, "export it")
    shown = terminal.wait_for(APPROVE)
    assert "May export be called" in shown
    assert '"day": "monday"' in shown
    assert not (home.path / "exported").exists()
    terminal.type("maybe\n")
    terminal.type("Yes\n")
    assert terminal.end() == 0
    assert (home.path / "exported").exists()
    (answer,) = [message for message in home.messages(exports) if message["mode"] == "answer"]
    assert answer["text"] == "approved"
    assert home.events(exports, "run.input_received")[0]["payload"]["approved"] is True


def test_an_approval_that_is_refused_on_the_terminal_skips_the_call(home: Home, exports: str) -> None:
    terminal = home.terminal("send", exports, "export it")
    terminal.wait_for(APPROVE)
    terminal.type("n\n")
    assert terminal.end() == 0
    assert not (home.path / "exported").exists()
    (finished,) = home.events(exports, "tool.finished")
    assert finished["payload"]["status"] == "skipped"
    assert home.events(exports, "tool.started") == []


@pytest.mark.parametrize(("command", "word"), [("approve", "approved"), ("deny", "denied")])
def test_an_approval_from_another_terminal_settles_the_one_that_is_asked(
    home: Home, exports: str, command: str, word: str
) -> None:
    terminal = home.terminal("send", exports, "export it")
    terminal.wait_for(APPROVE)
    settled = home.run(command, exports, "op-2", "--note", "as agreed")
    assert (settled.code, settled.text) == (0, f"{exports}/run-1 3 answer\n")
    assert terminal.end() == 0
    assert (home.path / "exported").exists() == (command == "approve")
    (received,) = home.events(exports, "run.input_received")
    assert received["payload"]["approved"] is (command == "approve")
    assert received["payload"]["note"] == "as agreed"
    assert word in terminal.text


@pytest.mark.parametrize("command", ["approve", "deny"])
def test_without_a_terminal_the_run_waits_and_an_approval_starts_the_next_stretch(
    home: Home, exports: str, command: str
) -> None:
    waiting = home.run("send", exports, "export it")
    assert (waiting.code, waiting.out) == (5, b"")
    assert f"agentrun approve {exports}/run-1 op-2" in waiting.said
    assert f"agentrun deny {exports}/run-1 op-2" in waiting.said
    assert home.view(f"{exports}/1")["executor"] == "none"
    settled = home.run(command, exports)
    assert (settled.code, settled.text) == (0, f"{exports}/run-1 3 answer\n")
    home.wait_for_status(exports, "completed")
    assert (home.path / "exported").exists() == (command == "approve")
    assert [event["generation"] for event in home.events(exports, "run.lease_acquired")] == [1, 2]
    assert len(home.events(exports, "tool.started")) == (command == "approve")


def test_a_text_cannot_approve(home: Home, exports: str) -> None:
    home.run("send", exports, "export it")
    for mode in ((), ("--mode", "answer")):
        refused = home.run("send", exports, "approved", *mode)
        assert (refused.code, refused.out) == (7, b"")
        assert f"agentrun approve {exports}/run-1" in refused.said
    assert home.run("approve", exports, "op-7").code == 7
    assert home.status(exports) == "waiting_input"
    assert not (home.path / "exported").exists()


def test_an_approval_is_given_once(home: Home, exports: str) -> None:
    home.run("send", exports, "export it")
    assert home.run("approve", exports).code == 0
    home.wait_for_status(exports, "completed")
    assert home.run("approve", exports).code == 7
    assert home.run("deny", exports).code == 7
    assert len(home.events(exports, "tool.started")) == 1


def test_two_approvals_of_one_turn_are_asked_one_after_the_other(home: Home) -> None:
    home.tool("export", "cat", effect="write")
    calls = [{"name": "export", "arguments": {"day": day}} for day in ("monday", "tuesday")]
    home.model({"calls": calls}, {"text": "a report"})
    session = home.new()
    terminal = home.terminal("send", session, "export both")
    terminal.wait_for(APPROVE)
    assert "tuesday" not in terminal.text.split("question")[-1]
    terminal.type("y\n")
    terminal.wait_for(APPROVE, count=2)
    terminal.type("n\n")
    assert terminal.end() == 0
    statuses = [event["payload"]["status"] for event in home.events(session, "tool.finished")]
    assert sorted(statuses) == ["skipped", "succeeded"]


def test_a_cancel_while_an_approval_is_asked_lets_nothing_fire(home: Home, exports: str) -> None:
    terminal = home.terminal("send", exports, "export it")
    terminal.wait_for(APPROVE)
    assert home.run("cancel", exports, "--wait").code == 0
    assert terminal.end() == 3
    assert not (home.path / "exported").exists()
    (finished,) = home.events(exports, "tool.finished")
    assert finished["payload"]["status"] == "skipped"
    assert home.run("approve", exports).code == 7
