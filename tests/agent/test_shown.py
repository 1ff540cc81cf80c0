"""What a request shows is kept from one request to the next, and is what it would be if it were made anew."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import anyio
import pytest

from agentrun.agent.context import build_request
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Conversation, Limits, ModelReply, ModelRequest, ToolCall, ToolOutcome
from agentrun.agent.transcript import Transcript
from agentrun.records.event import Event
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeModel, FakeTool, calling, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

CUT_OFF = ToolOutcome(OperationStatus.TIMED_OUT, error="too slow", may_have_effects=True)
BAD = ToolOutcome(OperationStatus.FAILED, error="exit 1")


def test_after_every_event_it_is_what_it_would_be_if_all_were_taken_up_anew() -> None:
    kept, seen = Transcript(), []

    def compare(stretch: FakeStretch, event: Event) -> None:
        kept.catch_up(stretch.events)
        anew = Transcript().catch_up(stretch.events)
        assert told(stretch, kept) == told(stretch, anew)
        used = [(each.turns_used, each.calls_used, each.call_ids) for each in (kept, anew)]
        assert used[0] == used[1]
        assert used[0][0] == sum(turn.request is not None for turn in kept.turns)
        assert used[0][1] == sum(call.attempt > 0 for turn in kept.turns for call in turn.calls)
        seen.append(event.type)

    stretch = FakeStretch("go")
    stretch.hooks.append(compare)
    stretch.at(EventType.TOOL_STARTED, lambda there: there.steer("not that way"))
    stretch.at(EventType.MODEL_REQUEST_FINISHED, lambda there: there.follow_up("and that"))
    tools = [FakeTool("export", outcomes(CUT_OFF), effect="write"), FakeTool("query", outcomes(BAD, CUT_OFF))]
    turns = [calling("export", "query"), calling("query"), calling("nowhere"), {"text": "done"}, {"text": "that too"}]
    assert anyio.run(stretch.drive, LoopAgent(scripted(*turns), tools, Limits(), "")) is RunStatus.COMPLETED
    # Found out when other turns have come since: what the first one is told as is not what it was.
    (cut_off,) = stretch.run.unresolved_operations
    before = told(stretch, kept)
    stretch.find(cut_off.operation_id, OperationStatus.SUCCEEDED)
    assert seen[-1] == EventType.OPERATION_RECONCILED
    assert told(stretch, kept) != before


def test_a_summary_that_came_takes_the_place_of_what_it_covers() -> None:
    stretch = FakeStretch("go")
    model = scripted(calling("query"), calling("query"), {"text": "done"})
    anyio.run(stretch.drive, LoopAgent(model, [FakeTool("query")], Limits(), ""))
    kept = Transcript().catch_up(stretch.events)
    whole = told(stretch, kept).messages
    stretch.conversation = Conversation((), {}, "it went well", covered_events=kept.turns[1].begun_at - 1)
    shorter = told(stretch, kept).messages
    assert [message.role for message in shorter] == ["user", "user", *(each.role for each in whole[3:])]
    assert told(stretch, Transcript().catch_up(stretch.events)).messages == shorter


def told(stretch: FakeStretch, transcript: Transcript) -> ModelRequest:
    return build_request("be careful", [], stretch, transcript)


class Counting(FakeModel):
    """Asks for one call after the other, and counts the steps of the interpreter from some of its requests to the next.

    `steps` has them by the request's number.
    """

    def __init__(self, turns: int, counted: tuple[int, ...]) -> None:
        calls = [ModelReply("", (ToolCall(f"call-{number}", "query", {}),)) for number in range(turns)]
        super().__init__(*calls, ModelReply("done"))
        self.steps = dict.fromkeys(counted, 0)
        self._number = 0

    async def complete(self, request: ModelRequest, on_text: Any) -> ModelReply:
        sys.settrace(None)
        self._number += 1
        reply = self._replies.pop(0)
        assert isinstance(reply, ModelReply)
        sys.settrace(self._enter if self._number in self.steps else None)
        return reply

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        self.steps[self._number] += event == "opcode"
        return self._step


@pytest.mark.slow
def test_a_late_turn_takes_no_more_steps_than_an_early_one() -> None:
    model = Counting(121, (20, 120))
    limits = Limits(max_turns=1000, max_tool_calls=1000, max_tokens=10**9)
    before = sys.gettrace()
    # What the collector finds of earlier tests has steps of its own, whenever it comes.
    gc.collect()
    gc.disable()
    try:
        anyio.run(FakeStretch("go", yields=False).drive, LoopAgent(model, [FakeTool("query")], limits, ""))
    finally:
        gc.enable()
        sys.settrace(before)
    # One step for each turn that came before would be a hundred.
    assert 1000 < model.steps[120] < model.steps[20] + 50
