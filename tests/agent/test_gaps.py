"""What a report says of itself: the calls that gave no result, from the record.

# covers A37 A55
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from agentrun.agent import pauses
from agentrun.agent.gaps import HEADING, INTRODUCTION
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits, ToolOutcome
from agentrun.records.codec import Doc
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus as Status
from agentrun.testing.fakes import FakeTool, calling, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

GOOD = ToolOutcome(Status.SUCCEEDED, b"good")
BAD = ToolOutcome(Status.FAILED, error="exit 1:\n no such\ttable")
FOR_NOW = ToolOutcome(Status.FAILED, error="exit 75", retryable=True)
LATE = ToolOutcome(Status.TIMED_OUT, error="it did not end within 1 s", may_have_effects=True)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 0.0)


def report(*turns: Doc, tools: list[FakeTool], answers: Sequence[str] = ()) -> str:
    stretch = FakeStretch()
    stretch.answers = list(answers)
    anyio.run(stretch.drive, LoopAgent(scripted(*turns), tools, Limits(), ""))
    assert stretch.report is not None
    return stretch.report


def test_a_call_that_failed_stands_at_the_end_of_the_report_on_one_line() -> None:
    said = report(calling("query"), {"text": "# Report\n\nAll is well.\n"}, tools=[FakeTool("query", outcomes(BAD))])
    assert said == (
        f"# Report\n\nAll is well.\n\n{HEADING}\n\n{INTRODUCTION}\n\n"
        '* op-2 query {"of":"query"}: failed: exit 1: no such table\n'
    )


def test_a_report_without_a_gap_is_delivered_as_it_is() -> None:
    assert report(calling("query"), {"text": "# Report"}, tools=[FakeTool("query")]) == "# Report"


def test_what_was_tried_again_with_success_is_no_gap() -> None:
    within = FakeTool("query", outcomes(FOR_NOW, GOOD), retries=1)
    assert report(calling("query"), {"text": "x"}, tools=[within]) == "x"
    by_the_model = FakeTool("query", outcomes(BAD, GOOD))
    assert report(calling("query"), calling("query"), {"text": "x"}, tools=[by_the_model]) == "x"


def test_another_call_of_the_same_tool_fills_no_gap() -> None:
    other = {"calls": [{"name": "query", "arguments": {"of": "something else"}}]}
    said = report(calling("query"), other, {"text": "x"}, tools=[FakeTool("query", outcomes(BAD, GOOD))])
    assert "* op-2 query" in said


def test_an_earlier_success_does_not_hide_a_later_failure() -> None:
    said = report(calling("query"), calling("query"), {"text": "x"}, tools=[FakeTool("query", outcomes(GOOD, BAD))])
    assert "* op-4 query" in said


def test_a_write_of_which_nobody_knows_stays_a_gap_whatever_came_after() -> None:
    export = FakeTool("export", outcomes(LATE, GOOD), effect="write", remote_id="job-7")
    said = report(calling("export"), calling("export"), {"text": "x"}, tools=[export])
    assert said.splitlines()[-1] == (
        '* op-2 export {"of":"export"}: timed out: it did not end within 1 s; '
        "what it did outside is unresolved (remote id job-7)"
    )


def test_a_call_that_was_refused_is_a_gap_whoever_was_against_it() -> None:
    """By its configuration, by the user, or for a resource; but not if it was allowed when the model asked again."""
    never, asked = FakeTool("query", approve="deny"), FakeTool("export", approve="ask", effect="write")
    said = report(calling("query", "export"), {"text": "x"}, tools=[never, asked], answers=["denied"])
    assert said.splitlines()[-2:] == [
        '* op-2 query {"of":"query"}: was refused: its configuration does not allow it (approve = deny)',
        '* op-3 export {"of":"export"}: was refused: the user denied it',
    ]
    again = FakeTool("export", approve="ask", effect="write")
    turns = calling("export"), calling("export"), {"text": "x"}
    assert report(*turns, tools=[again], answers=["denied", "approved"]) == "x"
    for words in ("the resource 'desk' is claimed by op-2 (export) of s/run-1", "who has the resource 'desk' ..."):
        assert Operation("op-2", "tool", "export", status=Status.SKIPPED, error=words).is_refused


def test_a_call_that_asked_nobody_for_anything_is_no_gap() -> None:
    assert report(calling("none"), {"text": "x"}, tools=[FakeTool("query")]) == "x"
    steered = Operation("op-2", "tool", "query", status=Status.SKIPPED, error="the user has said something new")
    assert not steered.is_refused


def test_a_long_error_is_shortened() -> None:
    tool = FakeTool("query", outcomes(ToolOutcome(Status.FAILED, error="e" * 5000)))
    assert len(report(calling("query"), {"text": "x"}, tools=[tool])) < 600
