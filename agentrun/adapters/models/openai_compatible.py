"""Models behind an OpenAI-compatible endpoint: chat completions, streamed.

Ollama, vLLM, llama.cpp, LM Studio and many providers speak this dialect, none of them all of it; what is asked
for here is what all of them take. Each call of `complete` is one attempt, over a connection of its own that is
closed when it ends, however it ends: the server sees a cancelled request go at once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from agentrun.adapters.extras import load_extra
from agentrun.adapters.models import failures
from agentrun.adapters.models.bounded import bounded_client
from agentrun.adapters.models.settings import ModelSettings
from agentrun.adapters.models.streaming import reply_from
from agentrun.adapters.models.wire import (
    ASK_USER,
    ASK_USER_DESCRIPTION,
    ASK_USER_PARAMETERS,
    Ended,
    StreamedCall,
    alternating,
    sent_arguments,
    sent_name,
)
from agentrun.agent.protocols import ChatMessage, ModelReply, ModelRequest, StopReason
from agentrun.records.codec import Doc

_EXTRA = "openai"
DEFAULT_URL = "https://api.openai.com/v1"
# The SDK insists on a key; a server that needs none does not look at it.
_NO_KEY = "none"

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAICompatibleModel:
    """The model `settings.name` of an endpoint; `label` is what its requests are recorded under."""

    def __init__(self, settings: ModelSettings, *, label: str | None = None) -> None:
        self._settings = settings
        self._label = label or f"openai:{settings.name}"

    @property
    def name(self) -> str:
        """The provider and the model."""
        return self._label

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The reply to `request`; see `agent.protocols.Model`."""
        return await reply_from(self._chunks(request), _Stream(), on_text, self._settings, "openai")

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        """The stream's chunks. Raises ModelFailed, with the key taken out, for all that can go wrong on the way."""
        key = await self._settings.key.read()
        openai = load_extra(_EXTRA, "openai")
        httpx = load_extra(_EXTRA, "httpx2")
        settings = self._settings
        with failures.as_model_failures(openai, httpx, settings, settings.base_url or DEFAULT_URL):
            # No retries of the SDK's: each attempt is an operation of the run, recorded and counted.
            async with (
                openai.AsyncOpenAI(
                    api_key=key or _NO_KEY,
                    base_url=settings.base_url or DEFAULT_URL,
                    max_retries=0,
                    timeout=httpx.Timeout(settings.silence, connect=failures.CONNECT_SECONDS),
                    http_client=bounded_client(openai),
                ) as client,
                await client.chat.completions.create(**self._body(request)) as stream,
            ):
                async for chunk in stream:
                    yield chunk

    def _body(self, request: ModelRequest) -> Doc:
        settings = self._settings
        body: Doc = {
            "model": settings.name,
            "messages": _messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools := _tools(request, may_ask=settings.may_ask):
            body["tools"] = tools
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            # OpenAI's newer models refuse the old name, other servers know no other.
            body["max_tokens" if settings.base_url else "max_completion_tokens"] = settings.max_output_tokens
        if request.reply_schema is not None:
            schema = {"name": "reply", "schema": request.reply_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


def _messages(request: ModelRequest) -> list[Doc]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(_message(message) for message in alternating(request.messages))]


def _message(message: ChatMessage) -> Doc:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": sent_name(message.call_id or ""), "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": sent_name(call.call_id),
            "type": "function",
            "function": {"name": sent_name(call.name), "arguments": json.dumps(sent_arguments(call))},
        }
        for call in message.calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def _tools(request: ModelRequest, *, may_ask: bool) -> list[Doc]:
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    # With a schema, asking the user is one of the forms that the reply may have.
    if may_ask and request.reply_schema is None and ASK_USER not in {tool.name for tool in request.tools}:
        tools.append((ASK_USER, ASK_USER_DESCRIPTION, ASK_USER_PARAMETERS))
    return [
        {"type": "function", "function": {"name": name, "description": description, "parameters": dict(parameters)}}
        for name, description, parameters in tools
    ]


class _Stream:
    """Puts a reply together from its chunks."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[tuple[int | None, int], StreamedCall] = {}
        self._reason: str | None = None
        self._usage: Doc | None = None

    def take(self, chunk: Any) -> str:
        """Adds a chunk; returns the text in it."""
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        texts = [self._choice(choice) for choice in (chunk.choices or ()) if not choice.index]
        self._text += texts
        return "".join(texts)

    def ended(self) -> Ended:
        """What the stream has brought."""
        calls = tuple(call.whole() for call in self._calls.values())
        # A reason that is new to us still says that the reply is whole.
        reason = _STOP_REASONS.get(self._reason, "end_turn") if self._reason else None
        return Ended("".join(self._text), calls, reason, self._usage)

    def _choice(self, choice: Any) -> str:
        self._reason = choice.finish_reason or self._reason
        delta = choice.delta
        if delta is None:
            return ""
        for piece in delta.tool_calls or ():
            self._call(piece)
        return (delta.content or "") + (getattr(delta, "refusal", None) or "")

    def _call(self, piece: Any) -> None:
        # Some servers number no calls, or give all of them the same number: a new id then begins a new call.
        key = piece.index
        last = next((call for at, call in reversed(self._calls.items()) if key is None or at[0] == key), None)
        if last is None or (piece.id and last.call_id and piece.id != last.call_id):
            last = self._calls[(key, len(self._calls))] = StreamedCall()
        last.call_id = last.call_id or piece.id or ""
        if piece.function is not None:
            last.name = last.name or piece.function.name or ""
            last.arguments.append(piece.function.arguments or "")


def _usage(usage: Any) -> Doc:
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    counted: Doc = {"inputTokens": usage.prompt_tokens, "outputTokens": usage.completion_tokens}
    return counted | ({"cacheReadTokens": cached} if cached else {})
