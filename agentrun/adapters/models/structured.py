"""Lets a model choose its next action as JSON by a schema, in place of the API's own tool calls.

Small models write calls that look right and are none. A server that enforces a schema (llama.cpp by a grammar,
vLLM, OpenAI) cannot let them: each reply is then one action, with a tool and arguments that exist. The model is
shown its earlier actions in the same form, and their results as what the user says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext

from agentrun.adapters.models.wire import ASK_USER, ASK_USER_DESCRIPTION
from agentrun.agent.protocols import (
    ChatMessage,
    Model,
    ModelFailed,
    ModelReply,
    ModelRequest,
    Opened,
    ToolCall,
    ToolSpec,
)
from agentrun.records.codec import Doc
from agentrun.records.jsontext import value_of

REPORT = "report"

_SYSTEM = """\
You work step by step. Each of your replies is one JSON object, which is your next action. The actions are:

{actions}
You see the result of each action before you choose the next one. When the work is done, report."""
_TEXT = {"text": {"type": "string", "minLength": 1}}
# Where the text of a report begins; the schema puts it behind the name of the action.
_REPORT_BEGINS = re.compile(r'"action"\s*:\s*"' + REPORT + r'"\s*,\s*"text"\s*:\s*"')
# JSON's escapes; one at the end of what has come may be half of itself, or half of a surrogate pair.
_INNER = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")


class StructuredActions:
    """`model`, asked for one action at a time. With `may_ask`, asking the user is one of them."""

    def __init__(self, model: Model, *, may_ask: bool) -> None:
        self._model = model
        self._may_ask = may_ask

    @property
    def name(self) -> str:
        """As the model's own."""
        return self._model.name

    def opened(self) -> AbstractAsyncContextManager[None]:
        """As the model's own."""
        return self._model.opened() if isinstance(self._model, Opened) else nullcontext()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The next action as a reply: a call, a question, or the report. Raises ModelFailed."""
        report = _StreamedReport()

        async def on_json(piece: str) -> None:
            text = report.take(piece)
            if text:
                await on_text(text)

        asked = request._replace(
            system="\n\n".join(part for part in (request.system, _explained(request.tools, self._may_ask)) if part),
            messages=tuple(_as_text(request.messages)),
            tools=(),
            reply_schema=_schema(request.tools, self._may_ask),
        )
        reply = await self._model.complete(asked, on_json)
        return reply if reply.stop_reason != "end_turn" else _action(reply)


def _schema(tools: Iterable[ToolSpec], may_ask: bool) -> Doc:
    actions = [_form(tool.name, {"arguments": {"type": "object"} | dict(tool.parameters)}) for tool in tools]
    actions += [_form(ASK_USER, _TEXT)] if may_ask else []
    # Inside an object, since OpenAI takes no choice at the top.
    return _object({"next": {"anyOf": [*actions, _form(REPORT, _TEXT)]}})


def _form(action: str, more: Doc) -> Doc:
    return _object({"action": {"type": "string", "const": action}} | more)


def _object(properties: Doc) -> Doc:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _explained(tools: Iterable[ToolSpec], may_ask: bool) -> str:
    actions = [
        f"{_written(tool.name, {'arguments': _sample(tool.parameters)})}\n  {tool.description}" for tool in tools
    ]
    if may_ask:
        actions.append(f"{_written(ASK_USER, {'text': '...'})}\n  {ASK_USER_DESCRIPTION}")
    actions.append(f"{_written(REPORT, {'text': '...'})}\n  The work is done: text is the report for the user.")
    return _SYSTEM.format(actions="\n".join(actions) + "\n")


def _sample(parameters: Doc) -> Doc:
    properties = parameters.get("properties")
    return dict.fromkeys(properties, "...") if isinstance(properties, dict) else {}


def _written(action: str, more: Doc) -> str:
    return json.dumps({"next": {"action": action} | more}, ensure_ascii=False)


def _as_text(messages: Iterable[ChatMessage]) -> Iterable[ChatMessage]:
    """The messages with actions and results as text."""
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            name = names.get(message.call_id or "", "the action")
            yield ChatMessage("user", f"[Result of {name}]\n{message.text}\n[End of the result]")
        elif message.calls:
            names |= {call.call_id: call.name for call in message.calls}
            actions = [_written(call.name, {"arguments": call.arguments}) for call in message.calls]
            yield ChatMessage("assistant", "\n".join(actions))
        else:
            yield message


def _action(reply: ModelReply) -> ModelReply:
    try:
        action = value_of(reply.text)["next"]
        name = action["action"]
        if name == REPORT:
            return reply._replace(text=str(action["text"]))
        if name == ASK_USER:
            return reply._replace(text="", question=str(action["text"]))
        return reply._replace(text="", calls=(ToolCall("", str(name), action["arguments"]),))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        # The endpoint does not enforce the schema, and this time the model did not keep to it.
        raise ModelFailed(f"the reply is no action: {reply.text[:200]!r}", retryable=True) from error


class _StreamedReport:
    """Takes the text of a report out of the JSON that streams in. Of any other action there is none."""

    def __init__(self) -> None:
        self._json = ""
        self._begins: int | None = None
        self._given = 0

    def take(self, piece: str) -> str:
        """What more of the report's text is known with this piece."""
        self._json += piece
        if self._begins is None:
            begin = _REPORT_BEGINS.search(self._json)
            if begin is None:
                return ""
            self._begins = self._given = begin.end()
        match = _INNER.match(self._json, self._given)
        assert match
        inner = _HALF_PAIR.sub("", match[0])
        self._given += len(inner)
        return str(json.loads(f'"{inner}"', strict=False))
