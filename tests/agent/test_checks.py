"""Completed means checked: a draft that does not pass goes back to the model, and nothing unchecked is delivered.

# covers A38 A57
"""

from __future__ import annotations

import io
from collections.abc import Callable

import anyio
import pytest

from agentrun.agent.context import NOT_PASSED
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Invocation, Limits, ModelReply, ToolOutcome
from agentrun.records.event import Event
from agentrun.records.operation import Operation
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, calling, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

E = EventType
PASSED = OperationStatus.SUCCEEDED, OperationStatus.FAILED


class FakeCheck:
    """Passes drafts that contain `wanted`. `drafts` are those that it was given."""

    def __init__(self, wanted: str, name: str = "check") -> None:
        self.name = name
        self.wanted = wanted
        self.drafts: list[str] = []

    async def run(self, draft: bytes, invocation: Invocation, on_stopped: Callable[[ToolOutcome], None]) -> ToolOutcome:
        await anyio.lowlevel.checkpoint()
        self.drafts.append(draft.decode())
        if self.wanted in self.drafts[-1]:
            return ToolOutcome(OperationStatus.SUCCEEDED)
        return ToolOutcome(OperationStatus.FAILED, io.BytesIO(b"no " + self.wanted.encode()), error="exit 1")


class Hanging:
    """Goes on until it is stopped."""

    name = "hang"

    async def run(self, draft: bytes, invocation: Invocation, on_stopped: Callable[[ToolOutcome], None]) -> ToolOutcome:
        try:
            await anyio.sleep_forever()
        finally:
            on_stopped(ToolOutcome(OperationStatus.CANCELLED, b"half"))
        raise AssertionError("nothing wakes this up")


def agent(*texts: str, **limits: int) -> LoopAgent:
    return LoopAgent(scripted(*({"text": text} for text in texts)), [], Limits(**limits), "")


def drive(stretch: FakeStretch, driven: LoopAgent) -> RunStatus:
    return anyio.run(stretch.drive, driven)


def checked(stretch: FakeStretch) -> list[Operation]:
    return [each for each in stretch.operations if each.kind == "check"]


def test_a_draft_that_passes_is_delivered_and_the_check_is_on_record() -> None:
    stretch, check = FakeStretch(), FakeCheck("sources")
    stretch.checks = [check]
    assert drive(stretch, agent("with sources")) is RunStatus.COMPLETED
    assert check.drafts == [stretch.report] == ["with sources"]
    (operation,) = checked(stretch)
    assert (operation.status, operation.name, operation.turn_id) == (OperationStatus.SUCCEEDED, "check", "turn-1")
    assert operation.check
    assert len(operation.check["sha256"]) == 64
    assert stretch.run.usage["checks"] == 1
    assert stretch.run.usage["toolCalls"] == 0
    types = stretch.types()
    assert types[-4:] == ["tool.registered", "tool.started", "tool.finished", "run.finished"]


def test_what_a_failed_check_said_is_what_the_model_sees_next() -> None:
    stretch = FakeStretch()
    stretch.checks = [FakeCheck("sources"), FakeCheck("total", "totals")]
    model = FakeModel(ModelReply("bare"), ModelReply("with sources and total"))
    assert drive(stretch, LoopAgent(model, [], Limits(), "")) is RunStatus.COMPLETED
    last = model.requests[1].messages[-1]
    assert (last.role, last.text) == (
        "user",
        f"{NOT_PASSED}\n\ncheck: exit 1\nno sources\n\ntotals: exit 1\nno total",
    )
    assert [message.text for message in model.requests[1].messages[:-1]] == ["go", "bare"]
    assert stretch.report == "with sources and total"


def test_each_draft_is_checked_anew_also_one_that_says_the_same() -> None:
    stretch, check = FakeStretch(), FakeCheck("sources")
    stretch.checks = [check]
    assert drive(stretch, agent("bare", "bare", "sources")) is RunStatus.COMPLETED
    assert check.drafts == ["bare", "bare", "sources"]


def test_a_budget_that_is_used_up_names_the_check() -> None:
    stretch = FakeStretch()
    stretch.checks = [FakeCheck("sources", "python3 sources.py")]
    assert drive(stretch, agent("bare", "bare", "sources", max_turns=2)) is RunStatus.FAILED
    assert stretch.report is None
    assert stretch.run.reason == (
        "the budget of 2 turns is used up (max_turns); the last draft did not pass: python3 sources.py"
    )


def test_the_draft_that_is_checked_has_its_gaps() -> None:
    stretch, check = FakeStretch(), FakeCheck("Gaps")
    stretch.checks = [check]
    broken = FakeTool("query", outcomes(ToolOutcome(OperationStatus.FAILED, error="exit 1")))
    driven = LoopAgent(scripted(calling("query"), {"text": "x"}), [broken], Limits(), "")
    assert drive(stretch, driven) is RunStatus.COMPLETED
    assert check.drafts == [stretch.report]


def test_a_steer_that_comes_over_a_check_is_answered_before_the_end() -> None:
    stretch, check = FakeStretch(), FakeCheck("")
    stretch.checks = [check, FakeCheck("", "second")]
    stretch.at(E.TOOL_STARTED, lambda each: each.steer("shorter"))
    assert drive(stretch, agent("long", "short")) is RunStatus.COMPLETED
    assert stretch.report == "short"
    assert [(each.name, each.status.value) for each in checked(stretch)] == [
        ("check", "succeeded"),
        ("check", "succeeded"),
        ("second", "succeeded"),
    ]


def test_a_check_that_is_stopped_is_recorded_as_such() -> None:
    stretch = FakeStretch()
    stretch.checks = [Hanging()]
    stretch.at(E.TOOL_STARTED, FakeStretch.cancel)
    assert drive(stretch, agent("x")) is RunStatus.CANCELLED
    (operation,) = checked(stretch)
    assert operation.status is OperationStatus.CANCELLED
    assert stretch.report is None


@pytest.mark.parametrize("left_at", [E.TOOL_REGISTERED, E.TOOL_STARTED])
def test_a_check_that_lost_its_executor_is_made_again(left_at: EventType) -> None:
    first = FakeStretch()
    first.checks = [FakeCheck("x")]
    drive(first, agent("x"))
    cut = first.types().index(left_at) + 1
    second = FakeStretch.after(first.events[:cut], first.messages)
    check = FakeCheck("x")
    second.checks = [check]
    assert drive(second, agent("x")) is RunStatus.COMPLETED
    assert check.drafts == ["x"]
    left, made = checked(second)
    assert left.status in (OperationStatus.SKIPPED, OperationStatus.CANCELLED)
    assert made.status is OperationStatus.SUCCEEDED
    assert second.run.usage["turns"] == 1, "the reply that was there is not asked for again"


def test_a_check_that_passed_says_nothing_of_another_check() -> None:
    first = FakeStretch()
    first.checks = [FakeCheck("x"), FakeCheck("x", "second")]
    drive(first, agent("x"))
    cut = first.types().index(E.TOOL_FINISHED) + 1
    second = FakeStretch.after(first.events[:cut], first.messages)
    checks = [FakeCheck("x"), FakeCheck("x", "second")]
    second.checks = list(checks)
    assert drive(second, agent("x")) is RunStatus.COMPLETED
    assert [check.drafts for check in checks] == [[], ["x"]]


def test_a_draft_that_a_finding_has_changed_is_checked_anew() -> None:
    """Somebody finds out over the check how a write ended: what is delivered then has another gap, or none."""
    stretch, check = FakeStretch(), FakeCheck("")
    stretch.checks = [check]
    late = ToolOutcome(OperationStatus.TIMED_OUT, error="too slow", may_have_effects=True)
    export = FakeTool("export", outcomes(late), effect="write")

    def found(hooked: FakeStretch, event: Event) -> None:
        if event.type == E.TOOL_STARTED and event.payload["operationId"] == "op-4":
            hooked.find("op-2", OperationStatus.SUCCEEDED)

    stretch.hooks.append(found)
    driven = LoopAgent(scripted(calling("export"), {"text": "x"}), [export], Limits(), "")
    assert drive(stretch, driven) is RunStatus.COMPLETED
    assert len(check.drafts) == 2
    assert check.drafts[0] != check.drafts[1] == stretch.report


def test_a_failed_check_is_known_to_the_next_executor() -> None:
    first = FakeStretch()
    first.checks = [FakeCheck("sources")]
    drive(first, agent("bare", "sources"))
    cut = first.types().index(E.TOOL_FINISHED) + 1
    second = FakeStretch.after(first.events[:cut], first.messages)
    check = FakeCheck("sources")
    second.checks = [check]
    assert drive(second, agent("bare", "with sources")) is RunStatus.COMPLETED
    assert check.drafts == ["with sources"]


def test_a_bug_in_a_check_passes_nothing() -> None:
    class Broken(FakeCheck):
        async def run(self, *_: object) -> ToolOutcome:
            raise ValueError("a bug")

    stretch = FakeStretch()
    stretch.checks = [Broken("")]
    assert drive(stretch, agent("x", max_turns=1)) is RunStatus.FAILED
    assert checked(stretch)[0].error == "the check could not be made: ValueError: a bug"
