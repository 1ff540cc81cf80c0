"""What an agent reports while it works: the loop's only output.

Each event is stored by the executor, as a line of `operations.jsonl`, before the agent goes on.
"""

from __future__ import annotations

from typing import BinaryIO

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.usage import told_usage
from agentrun.states import EventType, OperationStatus


class RequestFinished(NamedTuple):
    """A model request has ended.

    `calls` are `{id name arguments}` each, `question` is what the model asks the user, if it does; `extra` is
    whatever the model adapter needs to find again in a later stretch; `pause` are the seconds before another attempt.
    """

    operation_id: str
    attempt: int
    status: OperationStatus
    stop_reason: str | None
    text: str
    calls: tuple[Doc, ...] = ()
    question: str | None = None
    usage: Doc | None = None
    error: str | None = None
    will_retry: bool = False
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory
    pause: float | None = None


class ToolRegistered(NamedTuple):
    """A tool call that the model asked for is known; nothing has been started.

    `check` says that it is none, but a check of the draft whose bytes have that hash: `{command sha256}`. With `starts`
    it is started in the same step, if it may: if the run goes on and the user has said nothing new.
    """

    operation_id: str
    turn_id: str
    tool_call_id: str | None
    tool_name: str
    arguments: Doc
    effect: str
    resource: str | None
    idempotency_key: str
    check: Doc | None = None
    starts: bool = False


class ToolStarted(NamedTuple):
    """An agent from outside has begun a registered call: a fact, since nobody here was asked first."""

    operation_id: str
    tool_call_id: str
    tool_name: str
    attempt: int = 1


class ToolProgressed(NamedTuple):
    """How far a call has come, in words for people."""

    operation_id: str
    text: str


class RemoteIdLearned(NamedTuple):
    """The outside system gave the job an id."""

    operation_id: str
    remote_id: str


class ToolFinished(NamedTuple):
    """An attempt of a tool call has ended.

    `output` is what the tool printed, whole (a binary file at its start, or bytes); it is kept whatever its
    bytes are. `will_retry` says that another attempt follows inside the budget, after `pause` seconds; `note` what
    else there is to know; `shown` what the model is shown of an output that it can do nothing with, which is then kept
    in a blob.
    """

    operation_id: str
    attempt: int
    status: OperationStatus
    output: BinaryIO | bytes = b""
    error: str | None = None
    may_have_effects: bool = False
    will_retry: bool = False
    note: str | None = None
    pause: float | None = None
    shown: str | None = None


AgentEvent = RequestFinished | ToolRegistered | ToolStarted | ToolProgressed | RemoteIdLearned | ToolFinished


def as_stored(event: AgentEvent) -> tuple[EventType, Doc]:
    """Type and payload of the line that holds `event`, but for a reply's `text` and a call's `output`.

    An output may be too big for a line: whoever stores it adds `result`, what the model is shown of it, and
    `blob`.
    """
    match event:
        case RequestFinished():
            return EventType.MODEL_REQUEST_FINISHED, _request_finished(event)
        case ToolRegistered():
            return EventType.TOOL_REGISTERED, _tool_registered(event)
        case ToolStarted():
            return EventType.TOOL_STARTED, {
                "operationId": event.operation_id,
                "toolCallId": event.tool_call_id,
                "toolName": event.tool_name,
                "attempt": event.attempt,
            }
        case ToolProgressed():
            return EventType.TOOL_PROGRESS, {"operationId": event.operation_id, "text": event.text}
        case RemoteIdLearned():
            payload = {"operationId": event.operation_id, "remoteId": event.remote_id}
            return EventType.TOOL_REMOTE_ID, payload
        case ToolFinished():
            return EventType.TOOL_FINISHED, _tool_finished(event)


def _request_finished(event: RequestFinished) -> Doc:
    payload: Doc = {
        "operationId": event.operation_id,
        "status": event.status.value,
        "stopReason": event.stop_reason,
        "toolCalls": list(event.calls),
        "usage": told_usage(event.usage),
        "attempt": event.attempt,
    }
    rest = {
        "question": event.question,
        "error": event.error,
        "willRetry": event.will_retry,
        "pauseMs": _milliseconds(event.pause),
        "extra": event.extra,
    }
    return payload | {name: value for name, value in rest.items() if value}


def _tool_registered(event: ToolRegistered) -> Doc:
    payload: Doc = {
        "operationId": event.operation_id,
        "turnId": event.turn_id,
        "toolCallId": event.tool_call_id,
        "toolName": event.tool_name,
        "arguments": event.arguments,
        "effect": event.effect,
        "idempotencyKey": event.idempotency_key,
    }
    rest = {"resource": event.resource, "check": event.check}
    return payload | {name: value for name, value in rest.items() if value}


def _tool_finished(event: ToolFinished) -> Doc:
    payload: Doc = {
        "operationId": event.operation_id,
        "status": event.status.value,
        "mayHaveEffects": event.may_have_effects,
        "attempt": event.attempt,
    }
    rest = {
        "error": event.error,
        "note": event.note,
        "willRetry": event.will_retry,
        "pauseMs": _milliseconds(event.pause),
    }
    return payload | {name: value for name, value in rest.items() if value}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
