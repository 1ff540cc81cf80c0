"""What the model is told: every call has its one result, and that is the truth."""

from __future__ import annotations

from typing import Any

import pytest

from agentrun.agent.context import MAY_HAVE_EFFECTS, NOT_A_RESULT, build_request, outcome_text
from agentrun.agent.protocols import ChatMessage, Conversation, ModelRequest, ToolCall
from agentrun.agent.transcript import Transcript
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus as Status
from agentrun.testing.stretch import FakeStretch


def call(status: Status, **more: Any) -> Operation:
    return Operation("op-2", "tool", "query", effect=more.pop("effect", "read"), status=status, **more)


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (call(Status.SUCCEEDED, result="| 42 |"), ["| 42 |"]),
        (call(Status.SUCCEEDED, result=""), ["(It printed nothing.)"]),
        (call(Status.FAILED, error="exit 1: no table"), ["The call failed: exit 1: no table", NOT_A_RESULT]),
        (
            call(Status.FAILED, error="exit 1", result="row 1"),
            ["What it printed until then:\nrow 1", NOT_A_RESULT],
        ),
        (call(Status.TIMED_OUT, error="30 s"), ["The call timed out: 30 s", NOT_A_RESULT]),
        (
            call(Status.TIMED_OUT, effect="write", may_have_effects=True),
            ["The call timed out", "It may have had effects"],
        ),
        (call(Status.SKIPPED, error="a steer came"), ["The call was not started: a steer came"]),
        (call(Status.CANCELLED), ["The call was stopped", NOT_A_RESULT]),
        (
            call(Status.CANCELLED, effect="write", may_have_effects=True),
            [f"The call was stopped; {MAY_HAVE_EFFECTS}"],
        ),
        (call(Status.UNKNOWN, effect="write"), ["Nobody knows whether it happened; do not assume either"]),
        (call(Status.PENDING), ["The call was not started"]),
        (call(Status.PENDING, attempt=1, error="exit 75"), ["was not tried again: exit 75", NOT_A_RESULT]),
        (call(Status.RUNNING, attempt=1), ["its executor was lost", NOT_A_RESULT]),
        (call(Status.RUNNING, attempt=1, effect="write"), ["Nobody knows whether it happened"]),
    ],
)
def test_each_outcome_is_told_as_it_was(operation: Operation, says: list[str]) -> None:
    text = outcome_text(operation)
    for words in says:
        assert words in text


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.SUCCEEDED])
def test_no_other_outcome_looks_like_an_empty_result_or_a_zero(status: Status) -> None:
    for effect in ("read", "write"):
        text = outcome_text(call(status, effect=effect, result="0"))
        assert text.strip() not in ("", "0")
        assert text.startswith("The ")


def test_a_note_is_told_with_the_result() -> None:
    assert outcome_text(call(Status.SUCCEEDED, result="rows"), "cut") == "rows\n\n(cut)"


def message(seq: int, role: str, text: str) -> Message:
    return Message(seq, "session-test", "run-1", role, None, text, "")


def request_of(stretch: FakeStretch) -> ModelRequest:
    return build_request("be careful", [], stretch, Transcript().catch_up(stretch.events))


def test_what_was_said_before_comes_first_and_in_order() -> None:
    earlier = (
        message(1, "user", "why did it drop?"),
        message(2, "assistant", "the report"),
        message(3, "user", "export it"),
        message(4, "system", "run-2 was cancelled"),
    )
    conversation = Conversation(earlier, {"run-1": "the report, whole"}, summary="long ago")
    stretch = FakeStretch("more about traffic", conversation=conversation)
    play(stretch, [("input.delivered", {"messageSeqs": [1], "mode": "prompt", "turnId": "turn-1"})])
    request = request_of(stretch)
    assert [each.role for each in request.messages] == ["user"] * 2 + ["assistant"] + ["user"] * 4
    texts = [each.text for each in request.messages]
    assert "long ago" in texts[0]
    assert texts[1:4] == ["why did it drop?", "the report", "export it"]
    assert texts[4] == "[Note of the program, on run-1] run-2 was cancelled"
    assert texts[5].startswith("[The report of run-1, which the user cites]\nthe report, whole")
    assert texts[6] == request.last_input == "more about traffic"
    assert request.system == "be careful"


def play(stretch: FakeStretch, lines: list[tuple[str, dict[str, Any]]]) -> None:
    """Adds events as an executor stored them, whoever it was."""
    for kind, payload in lines:
        seq = len(stretch.events) + 1
        stretch.events.append(Event("session-test", "run-1", seq, kind, "", 1, payload))


def asked(turn: str, operation: str, status: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("model.request.started", {"operationId": operation, "turnId": turn, "model": "m", "attempt": 1}),
        ("model.request.finished", {"operationId": operation, "status": status, "attempt": 1, **more}),
    ]


def registered(operation: str, call_id: str, turn: str = "turn-1", effect: str = "read") -> tuple[str, dict[str, Any]]:
    payload = {"operationId": operation, "turnId": turn, "toolCallId": call_id, "toolName": "query"}
    return "tool.registered", payload | {"arguments": {}, "effect": effect, "idempotencyKey": "k"}


CALLS = [
    {"id": "c1", "name": "query", "arguments": {"of": 1}},
    {"id": "c2", "name": "query", "arguments": {}},
]


def test_a_question_is_the_assistants_and_its_answer_the_users() -> None:
    stretch = FakeStretch("go")
    stretch.messages.append(message(2, "user", "the last 30 days"))
    play(
        stretch,
        [
            ("input.delivered", {"messageSeqs": [1], "mode": "prompt", "turnId": "turn-1"}),
            *asked("turn-1", "op-1", "succeeded", text="I looked.", question="Which are new?"),
            ("run.waiting_input", {"questionId": "q1", "kind": "question", "text": "Which are new?"}),
            ("run.input_received", {"questionId": "q1", "messageSeq": 2}),
            ("input.delivered", {"messageSeqs": [2], "mode": "answer", "turnId": "turn-2"}),
        ],
    )
    request = request_of(stretch)
    assert request.messages == (
        ChatMessage("user", "go"),
        ChatMessage("assistant", "I looked.\n\nWhich are new?"),
        ChatMessage("user", "the last 30 days"),
    )
    assert request.replies[0].question == "Which are new?"
    assert request.replies[0].text == "I looked."


def test_results_stand_in_the_order_of_the_calls_and_lost_ones_are_said_to_be_lost() -> None:
    stretch = FakeStretch("go")
    play(
        stretch,
        [
            *asked("turn-1", "op-1", "succeeded", text="", toolCalls=CALLS),
            registered("op-2", "c1"),
            registered("op-3", "c2", effect="write"),
            ("tool.started", {"operationId": "op-3", "toolCallId": "c2", "toolName": "query", "attempt": 1}),
            ("tool.started", {"operationId": "op-2", "toolCallId": "c1", "toolName": "query", "attempt": 1}),
            (
                "tool.finished",
                {"operationId": "op-2", "status": "succeeded", "result": "rows", "note": "cut"},
            ),
        ],
    )
    request = request_of(stretch)
    assert request.messages[0].calls[0] == ToolCall("c1", "query", {"of": 1})
    assert [(each.role, each.call_id) for each in request.messages[1:]] == [("tool", "c1"), ("tool", "c2")]
    assert request.messages[1].text == "rows\n\n(cut)"
    assert "Nobody knows whether it happened" in request.messages[2].text


def test_what_is_found_out_later_is_what_the_model_is_told() -> None:
    stretch = FakeStretch("go")
    play(
        stretch,
        [
            *asked("turn-1", "op-1", "succeeded", text="", toolCalls=CALLS[:1]),
            registered("op-2", "c1", effect="write"),
            ("tool.started", {"operationId": "op-2", "toolCallId": "c1", "toolName": "query", "attempt": 1}),
            ("operation.reconciled", {"operationId": "op-2", "status": "unknown"}),
            ("operation.reconciled", {"operationId": "op-2", "status": "succeeded", "result": "exported"}),
        ],
    )
    assert request_of(stretch).messages[1].text == "exported"


def test_a_call_that_was_never_registered_has_a_result_too() -> None:
    stretch = FakeStretch("go")
    play(stretch, asked("turn-1", "op-1", "succeeded", text="", toolCalls=CALLS))
    assert [each.text for each in request_of(stretch).messages[1:]] == [
        "The call was not started: the run was interrupted before it"
    ] * 2


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_request_that_gave_no_reply_leaves_nothing_in_the_history(status: str) -> None:
    stretch = FakeStretch("go")
    play(stretch, asked("turn-1", "op-1", status, text="half a rep"))
    request = request_of(stretch)
    assert request.messages == ()
    assert request.replies == ()


def test_results_by_tool_are_those_of_its_last_call_that_was_made() -> None:
    stretch = FakeStretch("go")
    three = [*CALLS, {"id": "c3", "name": "query", "arguments": {}}]
    play(
        stretch,
        [
            *asked("turn-1", "op-1", "succeeded", text="", toolCalls=three),
            *(registered(f"op-{number + 1}", f"c{number}") for number in (1, 2, 3)),
            ("tool.started", {"operationId": "op-2", "toolCallId": "c1", "toolName": "query", "attempt": 1}),
            ("tool.started", {"operationId": "op-3", "toolCallId": "c2", "toolName": "query", "attempt": 1}),
            ("tool.finished", {"operationId": "op-3", "status": "failed", "error": "exit 1", "result": ""}),
            ("tool.finished", {"operationId": "op-2", "status": "succeeded", "result": "rows"}),
            ("tool.finished", {"operationId": "op-4", "status": "skipped", "error": "a steer came"}),
        ],
    )
    assert request_of(stretch).results == {"query": f"The call failed: exit 1\n{NOT_A_RESULT}"}


def test_inputs_of_one_delivery_stand_in_the_order_they_came() -> None:
    stretch = FakeStretch("go")
    stretch.messages += [message(2, "user", "second"), message(3, "user", "third")]
    play(
        stretch,
        [
            ("input.delivered", {"messageSeqs": [1, 3], "mode": "prompt", "turnId": "turn-1"}),
            ("input.delivered", {"messageSeqs": [2], "mode": "steer", "turnId": "turn-1"}),
        ],
    )
    request = request_of(stretch)
    assert [each.text for each in request.messages] == ["go", "second", "third"]
    assert request.last_input == "third"


def test_a_transcript_that_grows_is_the_one_that_is_read_at_once() -> None:
    stretch = FakeStretch("go")
    play(stretch, [*asked("turn-1", "op-1", "succeeded", text="", toolCalls=CALLS), registered("op-2", "c1")])
    grown = Transcript()
    for length in range(len(stretch.events) + 1):
        grown.catch_up(stretch.events[:length])
    assert grown.turns == Transcript().catch_up(stretch.events).turns
    assert (grown.next_operation_id, grown.next_turn_id) == ("op-3", "turn-2")
