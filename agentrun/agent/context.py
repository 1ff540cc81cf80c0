"""Chooses what the model sees, and says it so that it is true and that every model takes it.

At whatever point a run was interrupted, the messages made here are valid: each call in an assistant's message
is followed by exactly one result, which says what really became of the call. What failed is never shown as a
result, and what nobody knows is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from agentrun.agent.protocols import (
    ChatMessage,
    Conversation,
    ModelRequest,
    ToolSpec,
)
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn, tool_call
from agentrun.agent.verdicts import failed_checks
from agentrun.records.message import COMPACT, Message
from agentrun.records.operation import READ, Operation
from agentrun.states import OperationStatus as Status

NOT_A_RESULT = "This is not a result: do not take it for zero, nor for nothing found."
NOT_STARTED = "The call was not started"
NOBODY_KNOWS = (
    "Nobody knows whether it happened; do not assume either. Do not repeat it unless the user says so, "
    "and name it as unresolved in the report."
)
NOT_PASSED = (
    "[Note of the program] This is not delivered: it did not pass these checks. "
    "Correct it, and give the whole of it again."
)
MAY_HAVE_EFFECTS = "it may have had effects; do not assume either"


class Source(Protocol):
    """Where the context comes from; a `Stretch` is one."""

    @property
    def conversation(self) -> Conversation:
        """What came before this run."""

    def input(self, message_seq: int) -> Message:
        """The message of an input that was delivered."""


def build_request(system: str, tools: Sequence[ToolSpec], source: Source, transcript: Transcript) -> ModelRequest:
    """The request that a model gets next."""
    conversation = source.conversation

    def told(turn: Turn) -> Iterator[ChatMessage]:
        # What the user said to this run is always shown as it was said.
        yield from _inputs(turn, source)
        if _is_uncovered(turn, conversation):
            yield from reply_and_results(turn)

    shown = transcript.shown.messages(transcript.turns, conversation.covered_events, told)
    return ModelRequest(
        system=system,
        messages=(*_earlier(conversation), *_reports(conversation), *shown),
        tools=tuple(tools),
        last_input=_last_input(transcript, source),
        replies=transcript.replies,
        results=_results(transcript),
    )


def uncovered_turns(conversation: Conversation, transcript: Transcript) -> list[Turn]:
    """The turns of the run that no summary stands for."""
    return [turn for turn in transcript.turns if _is_uncovered(turn, conversation)]


def _is_uncovered(turn: Turn, conversation: Conversation) -> bool:
    return turn.begun_at > conversation.covered_events


def earlier_text(messages: Sequence[Message]) -> Iterator[str]:
    """Messages from before the run in words, for whoever summarises them."""
    who = {"user": "User", "assistant": "Assistant"}
    for message in messages:
        if message.mode != COMPACT:
            yield f"{who.get(message.role, 'Note of the program')} ({message.run_id}): {message.text}"


def outcome_text(call: Operation, note: str | None = None) -> str:
    """What the model is told of a call: its result, or the truth about why there is none."""
    output = call.result or ""
    parts = [output or "(It printed nothing.)"] if call.status is Status.SUCCEEDED else [_what_happened(call)]
    if call.status is not Status.SUCCEEDED and output:
        parts.append(f"What it printed until then:\n{output}")
    if note:
        parts.append(f"({note})")
    return "\n\n".join(parts)


def not_passed_text(turn: Turn) -> str:
    """What the model is told of the checks that its report did not pass; nothing if there are none."""
    failed = failed_checks(turn)
    return "\n\n".join([NOT_PASSED, *map(_check_text, failed)]) if failed else ""


def _check_text(check: Operation) -> str:
    printed = f"\n{check.result.strip()}" if check.result and check.result.strip() else ""
    return f"{check.name}: {check.error or check.status.value}{printed}"


def _what_happened(call: Operation) -> str:
    why = f": {call.error}" if call.error else ""
    effects = f" {MAY_HAVE_EFFECTS[0].upper()}{MAY_HAVE_EFFECTS[1:]}." if call.may_have_effects else ""
    match call.status:
        case Status.FAILED:
            return f"The call failed{why}\n{NOT_A_RESULT}{effects}"
        case Status.TIMED_OUT:
            return f"The call timed out{why}\n{NOT_A_RESULT}{effects}"
        case Status.SKIPPED:
            return f"{NOT_STARTED}{why}"
        case Status.CANCELLED if call.may_have_effects:
            return f"The call was stopped; {MAY_HAVE_EFFECTS}{why}"
        case Status.CANCELLED:
            return f"The call was stopped{why}\n{NOT_A_RESULT}"
        case Status.PENDING if call.attempt == 0:
            return f"{NOT_STARTED}: the run was interrupted before it"
        case Status.PENDING:
            return f"The call failed and was not tried again{why}\n{NOT_A_RESULT}"
        case Status.RUNNING if call.effect == READ:
            return f"The call was stopped: its executor was lost\n{NOT_A_RESULT}"
        case _:
            return f"The outcome of the call is unknown{why}\n{NOBODY_KNOWS}"


def _earlier(conversation: Conversation) -> Iterator[ChatMessage]:
    if conversation.summary:
        yield ChatMessage("user", f"[Summary of what was said before]\n{conversation.summary}")
    for message in conversation.messages:
        if message.mode == COMPACT:
            continue
        if message.role == "assistant":
            yield ChatMessage("assistant", message.text)
        elif message.role == "user":
            yield ChatMessage("user", message.text)
        else:
            # Not what the user said; but no model takes a system message in the middle.
            yield ChatMessage("user", f"[Note of the program, on {message.run_id}] {message.text}")


def _reports(conversation: Conversation) -> Iterator[ChatMessage]:
    for run_id, report in conversation.reports.items():
        yield ChatMessage(
            "user",
            f"[The report of {run_id}, which the user cites]\n{report}\n[End of the report of {run_id}]",
        )


def _inputs(turn: Turn, source: Source) -> list[ChatMessage]:
    return [ChatMessage("user", source.input(seq).text) for seq in sorted(turn.inputs)]


def _last_input(transcript: Transcript, source: Source) -> str:
    return source.input(max(transcript.last_inputs)).text if transcript.last_inputs else ""


def reply_and_results(turn: Turn) -> Iterator[ChatMessage]:
    """What the model said in a turn, what became of its calls, and of its report if that was checked in vain."""
    if turn.reply is None:
        # The request failed or was stopped: what had been streamed is a draft, and no reply.
        return
    text = turn.reply.text
    if turn.reply.question:
        text = f"{text}\n\n{turn.reply.question}".strip()
    calls = tuple(tool_call(call) for call in turn.reply.calls)
    if not text and not calls:
        return
    yield ChatMessage("assistant", text, calls=calls)
    for call in calls:
        operation = turn.call_of(call.call_id)
        told = _told(turn, operation) if operation else f"{NOT_STARTED}: the run was interrupted before it"
        yield ChatMessage("tool", told, call_id=call.call_id)
    not_passed = not_passed_text(turn)
    if not_passed:
        yield ChatMessage("user", not_passed)


def _told(turn: Turn, operation: Operation) -> str:
    return outcome_text(operation, turn.notes.get(operation.operation_id))


def _results(transcript: Transcript) -> dict[str, str]:
    """By tool, what became of its last call that is over; of one that was never started if there is no other."""
    last = transcript.shown.last_calls(transcript.turns)
    return {name: _told(turn, call) for name, (turn, call) in last.items()}
