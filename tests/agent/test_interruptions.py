"""The loop, stopped anywhere and taken up again from anywhere: no fact is lost, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from agentrun.adapters.models.scripted import ScriptedModel
from agentrun.agent import pauses
from agentrun.agent.context import build_request
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Invocation, Limits, Model, ModelReply, ModelRequest, Tool, ToolOutcome
from agentrun.agent.transcript import Transcript
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, calling, forever, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

E = EventType
CANCELLED, SKIPPED, UNKNOWN = OperationStatus.CANCELLED, OperationStatus.SKIPPED, OperationStatus.UNKNOWN
GOOD = ToolOutcome(OperationStatus.SUCCEEDED, b"good")
FOR_NOW = ToolOutcome(OperationStatus.FAILED, error="exit 75", retryable=True)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between attempts are what they are; no test waits for them."""
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 0.0)


def agent(model: Model, *tools: Tool) -> LoopAgent:
    return LoopAgent(model, tools, Limits(), "be careful")


def drive(stretch: FakeStretch, driven: LoopAgent) -> RunStatus:
    return anyio.run(stretch.drive, driven)


def statuses(stretch: FakeStretch) -> dict[str, OperationStatus]:
    """Of the tool calls, by operation id."""
    return {each.operation_id: each.status for each in stretch.operations if each.kind == "tool"}


def story() -> tuple[ScriptedModel, list[FakeTool]]:
    """Everything that happens in a run: parallel calls, a retry, an approval, a question, a remote id."""
    model = scripted(
        calling("query", "export", text="first look"),
        {"ask": "which are new?", "text": "Now I know more."},
        calling("query", "query", "nosuch", ifContains="30 days"),
        {"text": "report: {{op:query}}", "ifContains": "30 days"},
    )
    query = FakeTool("query", outcomes(FOR_NOW, GOOD), retries=2)
    export = FakeTool("export", effect="write", approve="ask", remote_id="job-7")
    return model, [query, export]


def told(*, yields: bool = True) -> FakeStretch:
    stretch = FakeStretch(yields=yields)
    stretch.answers = ["approved", "30 days"]
    return stretch


def whole_story() -> FakeStretch:
    stretch, (model, tools) = told(), story()
    assert drive(stretch, agent(model, *tools)) is RunStatus.COMPLETED
    return stretch


def assert_valid(stretch: FakeStretch) -> ModelRequest:
    """Each call has one result, right after the message that asks for it, and a name of its own."""
    request = build_request("s", [], stretch, Transcript().catch_up(stretch.events))
    waiting: list[str] = []
    seen: set[str] = set()
    for message in request.messages:
        if message.role == "tool":
            assert message.call_id in waiting
            waiting.remove(message.call_id)
            assert message.text
            continue
        assert waiting == []
        waiting = [call.call_id for call in message.calls]
        assert len(set(waiting)) == len(waiting)
        assert not seen & set(waiting)
        seen |= set(waiting)
    assert waiting == []
    return request


def test_the_history_is_valid_after_each_event() -> None:
    whole = whole_story()
    for length in range(1, len(whole.events) + 1):
        part = FakeStretch()
        part.events, part.messages = whole.events[:length], whole.messages
        assert_valid(part)


@pytest.mark.parametrize("yields", [True, False])
def test_a_stop_after_any_event_leaves_every_operation_with_its_fact(yields: bool) -> None:
    for seq in range(4, len(whole_story().events)):
        stretch, (model, tools) = told(yields=yields), story()
        stretch.stop_at(seq)
        assert drive(stretch, agent(model, *tools)) is RunStatus.CANCELLED, seq
        assert stretch.open_at_end == (), seq
        assert_valid(stretch)
        after_stop = stretch.types()[seq + 1 :]
        assert not {"model.request.started", "tool.started", "tool.registered"} & set(after_stop), seq
        for call in stretch.operations:
            never = call.kind == "tool" and call.attempt == 0
            assert (call.status is SKIPPED) == never, (seq, call)


@pytest.mark.parametrize("yields", [True, False])
def test_a_run_goes_on_from_any_event(yields: bool) -> None:
    whole = whole_story()
    for length in range(3, len(whole.events)):
        kept = whole.events[:length]
        answered = [event.payload["messageSeq"] for event in kept if event.type == E.RUN_INPUT_RECEIVED]
        messages = whole.messages[: 1 + len(answered)]
        later, (model, tools) = FakeStretch.after(kept, messages, yields=yields), story()
        later.answers = ["approved", "30 days"][len(answered) :]
        assert drive(later, agent(model, *tools)) is RunStatus.COMPLETED, length
        assert (later.report or "").startswith("report: "), length
        assert_valid(later)
        assert_nothing_happens_twice(later)


def assert_nothing_happens_twice(stretch: FakeStretch) -> None:
    started = [
        (event.payload["operationId"], event.payload["attempt"])
        for event in stretch.events
        if event.type in (E.TOOL_STARTED, E.MODEL_REQUEST_STARTED)
    ]
    assert len(set(started)) == len(started)
    delivered = [seq for event in stretch.events for seq in event.payload.get("messageSeqs", ())]
    assert len(set(delivered)) == len(delivered)
    kinds = stretch.types()
    assert kinds.count("tool.registered") == len(
        {event.payload["operationId"] for event in stretch.events if event.type == E.TOOL_REGISTERED}
    )


def test_a_write_that_was_under_way_in_a_dead_executor_is_unknown_and_not_sent_again() -> None:
    stretch, model = FakeStretch(), scripted(calling("export"), {"text": "done"})
    drive_until_started = FakeTool("export", forever, effect="write")
    stretch.at(E.TOOL_STARTED, FakeStretch.cancel)
    drive(stretch, agent(model, drive_until_started))
    dead = stretch.events[: stretch.types().index("tool.started") + 1]
    export = FakeTool("export", effect="write")
    later = FakeStretch.after(dead, stretch.messages)
    drive(later, agent(model, export))
    assert statuses(later) == {"op-2": UNKNOWN}
    assert export.invocations == []
    assert "Nobody knows whether it happened" in assert_valid(later).messages[2].text


@pytest.mark.parametrize(("effect", "effects"), [("read", False), ("write", True)])
def test_a_tool_that_is_stopped_half_way_is_cancelled_with_what_is_known(effect: Any, effects: bool) -> None:
    async def cancelling(invocation: Invocation) -> ToolOutcome:
        stretch.cancel()
        return await forever(invocation)

    stretch = FakeStretch()
    tools = FakeTool("a", forever, effect=effect), FakeTool("b", cancelling)
    assert drive(stretch, agent(scripted(calling("a", "b")), *tools)) is RunStatus.CANCELLED
    call = stretch.operations[1]
    assert (call.status, call.result, call.may_have_effects) == (CANCELLED, "half", effects)


def test_a_tool_that_says_nothing_when_stopped_may_have_done_all() -> None:
    class Silent(FakeTool):
        async def call(self, invocation: Invocation, on_remote_id: Any, on_stopped: Any) -> ToolOutcome:
            stretch.cancel()
            return await forever(invocation)

    stretch = FakeStretch()
    drive(stretch, agent(scripted(calling("a")), Silent("a", effect="write")))
    assert stretch.operations[1].is_unresolved


def test_a_stopped_model_request_keeps_its_partial_text_and_is_no_reply() -> None:
    class Slow(FakeModel):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
            await on_text("half a ")
            stretch.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    stretch = FakeStretch()
    assert drive(stretch, agent(Slow())) is RunStatus.CANCELLED
    (request,) = stretch.operations
    assert (request.status, request.result) == (CANCELLED, "half a ")
    assert [message.role for message in assert_valid(stretch).messages] == ["user"]


def test_a_call_that_waits_for_another_attempt_is_left_for_the_next_stretch_unless_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE_SECONDS", 60.0)
    stretch = FakeStretch()
    stretch.at(E.TOOL_FINISHED, FakeStretch.hand_over)
    model = scripted(calling("t"), {"text": "done"})
    assert drive(stretch, agent(model, FakeTool("t", outcomes(FOR_NOW), retries=1))) is RunStatus.RUNNING
    assert [each.status.value for each in stretch.run.open_operations] == ["pending"]
    later, tool = FakeStretch.after(stretch.events, stretch.messages), FakeTool("t", retries=1)
    assert drive(later, agent(model, tool)) is RunStatus.COMPLETED
    assert [each.attempt for each in tool.invocations] == [2]


# What a stretch refuses reaches the executor as one plain exception.


class Refusing(FakeStretch):
    """Refuses to start a call of the tool `b` again, or to store a remote id."""

    async def start_call(self, operation_id: str, tool_call_id: str, tool_name: str, attempt: int) -> str | None:
        if tool_name == "b":
            raise OSError("the disk is full")
        return await super().start_call(operation_id, tool_call_id, tool_name, attempt)

    async def record(self, *events: Any) -> None:
        if hasattr(events[0], "remote_id"):
            raise OSError("the disk is full")
        await super().record(*events)


def test_an_error_of_the_stretch_stops_the_siblings_and_comes_out_alone() -> None:
    stretch = Refusing()
    slow = FakeTool("a", forever, effect="write")
    with pytest.raises(OSError, match="the disk is full"):
        drive(stretch, agent(scripted(calling("a", "b")), slow, FakeTool("b", outcomes(FOR_NOW), retries=1)))
    assert statuses(stretch)["op-2"] is CANCELLED
    assert stretch.operations[1].may_have_effects


def test_a_remote_id_that_cannot_be_stored_is_no_failure_of_the_tool() -> None:
    stretch = Refusing()
    with pytest.raises(OSError, match="the disk is full"):
        drive(stretch, agent(scripted(calling("a")), FakeTool("a", remote_id="job-1")))
    assert statuses(stretch) == {"op-2": CANCELLED}
