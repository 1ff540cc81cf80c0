"""One turn of a run: a model request, its reply, and the calls of that."""

from __future__ import annotations

from typing import NamedTuple

from agentrun.agent.protocols import ModelReply, StopReason, ToolCall
from agentrun.records.codec import Doc
from agentrun.records.operation import Operation


class Reply(NamedTuple):
    """A whole reply of the model."""

    text: str
    calls: tuple[Doc, ...]
    question: str | None
    stop_reason: str | None
    usage: Doc | None
    extra: Doc


class Ask(NamedTuple):
    """A question that was put to the user; `operation_id` names the call that an approval is for.

    `approved` is None as long as no approval or denial is stored, and for the answer to a question.
    """

    question_id: str
    operation_id: str | None
    answered: bool = False
    approved: bool | None = None
    note: str | None = None


class Turn(NamedTuple):
    """One model request and the calls of its reply, in the order in which the model asked for them.

    `begun_at` is the seq of its first event, `inputs` are the seqs of the messages that were delivered with the
    request. `reply` is None while there is none, also if the request failed or was stopped. `checks` are those that the
    reply, as a draft, was given to. `notes` are what was noted of calls, by operation id; `asks` what the user was
    asked after the reply.
    """

    turn_id: str
    begun_at: int = 0
    inputs: tuple[int, ...] = ()
    request: Operation | None = None
    reply: Reply | None = None
    calls: tuple[Operation, ...] = ()
    checks: tuple[Operation, ...] = ()
    notes: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory
    asks: tuple[Ask, ...] = ()

    def call(self, operation_id: str) -> Operation:
        """The call of that id. Raises KeyError."""
        for operation in reversed(self.calls):
            if operation.operation_id == operation_id:
                return operation
        raise KeyError(operation_id)

    def call_of(self, tool_call_id: str) -> Operation | None:
        """The operation that the model's call became, or None if it was not registered."""
        return next((each for each in self.calls if each.tool_call_id == tool_call_id), None)

    def approval_of(self, operation_id: str) -> Ask | None:
        """The newest approval that was asked for that call."""
        return next((ask for ask in reversed(self.asks) if ask.operation_id == operation_id), None)

    @property
    def question(self) -> Ask | None:
        """The question of the reply as it was put to the user, or None as long as it was not."""
        return next((ask for ask in reversed(self.asks) if ask.operation_id is None), None)


def reply_of(payload: Doc) -> Reply:
    """The reply in a `model.request.finished`."""
    question = payload.get("question")
    return Reply(
        text=str(payload.get("text") or ""),
        calls=tuple(call for call in payload.get("toolCalls") or () if isinstance(call, dict)),
        question=question if isinstance(question, str) else None,
        stop_reason=payload.get("stopReason"),
        usage=payload.get("usage"),
        extra=payload.get("extra") or {},
    )


_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_turn_requests",
    "refusal": "refusal",
    "cancelled": "cancelled",
}


def model_reply(reply: Reply) -> ModelReply:
    """The reply as a model gave it, and sees it again."""
    return ModelReply(
        text=reply.text,
        calls=tuple(tool_call(call) for call in reply.calls),
        question=reply.question,
        stop_reason=_STOP_REASONS.get(str(reply.stop_reason), "end_turn"),
        usage=reply.usage,
        extra=reply.extra,
    )


def tool_call(call: Doc) -> ToolCall:
    """The call of a reply, as the model asked for it."""
    arguments = call.get("arguments")
    return ToolCall(str(call.get("id")), str(call.get("name")), arguments if isinstance(arguments, dict | str) else {})
