"""One operation is cancelled, at whatever point it is: its fact is recorded, its siblings and the run go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from agentrun.agent import pauses
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Invocation, Limits, Model, ModelReply, ModelRequest, Tool, ToolOutcome
from agentrun.records.event import Event
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, calling, forever, outcomes, scripted, succeed
from agentrun.testing.stretch import FakeStretch

E = EventType
FOR_NOW = ToolOutcome(OperationStatus.FAILED, error="exit 75", retryable=True)


def drive(stretch: FakeStretch, model: Model, *tools: Tool) -> RunStatus:
    return anyio.run(stretch.drive, LoopAgent(model, tools, Limits(), "be careful"))


def statuses(stretch: FakeStretch) -> dict[str, str]:
    return {each.name: each.status.value for each in stretch.operations if each.kind == "tool"}


def cancel_when_started(stretch: FakeStretch, operation_id: str) -> None:
    def hook(stretch: FakeStretch, event: Event) -> None:
        if event.type == E.TOOL_STARTED and event.payload["operationId"] == operation_id:
            stretch.cancel_operation(operation_id)

    stretch.hooks.append(hook)


@pytest.mark.parametrize("yields", [True, False])
@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_call_under_way_is_stopped_and_its_sibling_is_not(effect: str, is_sent: bool, yields: bool) -> None:
    # covers A56
    stretch = FakeStretch(yields=yields)

    async def cancel_the_other(invocation: Invocation) -> ToolOutcome:
        if is_sent:
            stretch.cancel_operation("op-2")
        return await succeed(invocation)

    if not is_sent:
        cancel_when_started(stretch, "op-2")
    tools = FakeTool("a", forever, effect=effect), FakeTool("b", cancel_the_other)  # type: ignore[arg-type]
    assert drive(stretch, scripted(calling("a", "b"), {"text": "{{op:a}} {{op:b}}"}), *tools) is RunStatus.COMPLETED
    assert statuses(stretch) == {"a": "cancelled", "b": "succeeded"}
    call = stretch.operations[1]
    assert call.error == "cancelled by ann: not needed"
    assert stretch.report is not None
    assert "The call was stopped" in stretch.report
    assert "result of op-3" in stretch.report
    # Felt before the call is sent off, the stop leaves it without effects.
    assert call.may_have_effects == (effect == "write" and is_sent)


def test_a_call_between_two_attempts_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 60.0)
    stretch = FakeStretch()
    stretch.at(E.TOOL_FINISHED, lambda stretch: stretch.cancel_operation("op-2"))
    tool = FakeTool("a", outcomes(FOR_NOW), retries=9)
    assert drive(stretch, scripted(calling("a"), {"text": "{{op:a}}"}), tool) is RunStatus.COMPLETED
    assert len(tool.invocations) == 1
    assert stretch.operations[1].status is OperationStatus.CANCELLED
    assert "attempt 1 failed (exit 75) and was the last one: cancelled by ann" in str(stretch.operations[1].error)


def test_a_call_that_has_not_started_never_does() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_REGISTERED, lambda stretch: stretch.cancel_operation("op-2"))
    tool = FakeTool("a")
    assert drive(stretch, scripted(calling("a"), {"text": "{{op:a}}"}), tool) is RunStatus.COMPLETED
    assert tool.invocations == []
    assert statuses(stretch) == {"a": "skipped"}


def test_a_call_that_would_have_to_be_approved_is_not_asked_about() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_REGISTERED, lambda stretch: stretch.cancel_operation("op-2"))
    tool = FakeTool("a", approve="ask")
    assert drive(stretch, scripted(calling("a"), {"text": "{{op:a}}"}), tool) is RunStatus.COMPLETED
    assert E.RUN_WAITING_INPUT not in stretch.types()
    assert statuses(stretch) == {"a": "skipped"}


def test_a_cancel_that_comes_when_the_call_is_over_changes_nothing() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_FINISHED, lambda stretch: stretch.cancel_operation("op-2"))
    assert drive(stretch, scripted(calling("a"), {"text": "{{op:a}}"}), FakeTool("a")) is RunStatus.COMPLETED
    assert statuses(stretch) == {"a": "succeeded"}
    assert stretch.report == "result of op-2"


def test_a_model_request_is_stopped_and_asked_again() -> None:
    class Slow(FakeModel):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
            if not self.requests:
                self.requests.append(request)
                stretch.cancel_operation("op-1")
                await anyio.sleep_forever()
            return await super().complete(request, on_text)

    stretch = FakeStretch()
    assert drive(stretch, Slow(ModelReply("done"))) is RunStatus.COMPLETED
    first, second = stretch.operations
    assert (first.status, first.error) == (OperationStatus.CANCELLED, "cancelled by ann: not needed")
    assert (second.status, second.turn_id) == (OperationStatus.SUCCEEDED, "turn-2")
    assert stretch.report == "done"


def test_a_stop_of_the_run_beats_that_of_an_operation() -> None:
    stretch = FakeStretch()

    def stop_both(stretch: FakeStretch) -> None:
        stretch.cancel_operation("op-2")
        stretch.cancel()

    stretch.at(E.TOOL_STARTED, stop_both)
    assert drive(stretch, scripted(calling("a"), {"text": "never"}), FakeTool("a", forever)) is RunStatus.CANCELLED
    assert statuses(stretch) == {"a": "cancelled"}


def test_whoever_takes_the_run_over_heeds_it_too() -> None:
    stretch = FakeStretch()
    stretch.at(E.TOOL_REGISTERED, FakeStretch.hand_over)
    model = scripted(calling("a"), {"text": "{{op:a}}"})
    drive(stretch, model, FakeTool("a"))
    stretch.cancel_operation("op-2")
    later, tool = FakeStretch.after(stretch.events, stretch.messages), FakeTool("a")
    assert drive(later, model, tool) is RunStatus.COMPLETED
    assert tool.invocations == []


def test_force_is_heard_by_a_tool_that_is_being_ended() -> None:
    heard: list[bool] = []

    class Asking(FakeTool):
        async def call(self, invocation: Invocation, *rest: object) -> ToolOutcome:  # type: ignore[override]
            heard.append(invocation.is_forced())
            stretch.cancel_operation("op-2", force=True)
            heard.append(invocation.is_forced())
            return await super().call(invocation, *rest)  # type: ignore[arg-type]

    stretch = FakeStretch()
    assert drive(stretch, scripted(calling("a"), {"text": "done"}), Asking("a", forever)) is RunStatus.COMPLETED
    assert heard == [False, True]
