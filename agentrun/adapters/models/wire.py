"""What the models' APIs have in common: how messages are put for them, and how streamed calls become whole.

A run's history is made by models and may hold anything: a name with a space, a call without an id, arguments
that are no JSON. An endpoint refuses a request with one of these, and would refuse it in every further turn; so
each is put in a form that is taken, while the result of the call says what was wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agentrun.agent.protocols import ChatMessage, ModelFailed, ModelReply, StopReason, ToolCall
from agentrun.records.codec import Doc
from agentrun.records.jsontext import value_of

# By which a model asks the user. The call is taken as the reply's question, and never becomes a tool call.
ASK_USER = "ask_user"
ASK_USER_DESCRIPTION = (
    "Ask the user a question that only the user can answer. The work stops until the answer comes, "
    "so use it only where you cannot go on without it."
)
ASK_USER_PARAMETERS: Doc = {
    "type": "object",
    "properties": {"question": {"type": "string"}},
    "required": ["question"],
}

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
# What both APIs take for names of tools, and for ids of calls.
_LONGEST_NAME = 64


def sent_name(text: str) -> str:
    """A name or id as an API takes it."""
    return _NOT_IN_NAMES.sub("_", text)[:_LONGEST_NAME] or "_"


def sent_arguments(call: ToolCall) -> Doc:
    """The arguments as an object. What is none goes along as text, so that the model sees what it wrote."""
    return call.arguments if isinstance(call.arguments, dict) else {"invalid_json": call.arguments}


def alternating(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages with the user's neighbouring ones as one: the templates of some models take no two in a row."""
    merged: list[ChatMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last and message.role == last.role == "user":
            merged[-1] = last._replace(text=f"{last.text}\n\n{message.text}")
        else:
            merged.append(message)
    return merged


class StreamedCall:
    """A call whose name and arguments come in pieces."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []

    def whole(self) -> ToolCall:
        """The call; arguments that are no JSON object are kept as the text that they are."""
        text = "".join(self.arguments)
        try:
            parsed = value_of(text or "{}")
        except (ValueError, RecursionError):
            parsed = None
        return ToolCall(str(self.call_id), str(self.name), parsed if isinstance(parsed, dict) else text)


class Ended(NamedTuple):
    """What a stream has brought when it is over."""

    text: str
    calls: tuple[ToolCall, ...]
    stop_reason: StopReason | None
    usage: Doc | None


def reply_of(ended: Ended, *, may_lack_reason: bool) -> ModelReply:
    """The reply that a stream was. Raises ModelFailed for one that ended without saying so, or brought nothing."""
    if ended.stop_reason is None and not may_lack_reason:
        raise ModelFailed(
            "the stream ended without a finish reason, so the reply may be cut off "
            '(finish_reason = "optional" takes such replies for whole)',
            retryable=True,
        )
    stop_reason = ended.stop_reason or "end_turn"
    if not ended.text and not ended.calls and stop_reason == "end_turn":
        raise ModelFailed("the reply was empty", retryable=True)
    calls = tuple(call for call in ended.calls if call.name != ASK_USER)
    questions = [_question(call) for call in ended.calls if call.name == ASK_USER]
    # Calls of a reply that was cut off are cut off themselves, whatever their arguments parse to.
    return ModelReply(
        text=ended.text,
        calls=calls if stop_reason == "end_turn" else (),
        question="\n\n".join(questions) or None if stop_reason == "end_turn" else None,
        stop_reason=stop_reason,
        usage=ended.usage,
    )


def _question(call: ToolCall) -> str:
    question = call.arguments.get("question") if isinstance(call.arguments, dict) else call.arguments
    return str(question or "What should I do next?")
