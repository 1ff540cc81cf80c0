"""Models behind Anthropic's Messages API, streamed.

As the OpenAI-compatible adapter: each call of `complete` is one attempt over a connection of its own. A reply
has ended when the stream has said why (`message_delta` with a stop reason).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
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
    sent_arguments,
    sent_name,
)
from agentrun.agent.protocols import ChatMessage, ModelReply, ModelRequest, StopReason
from agentrun.records.codec import Doc

_EXTRA = "anthropic"
DEFAULT_URL = "https://api.anthropic.com"
# The API wants a limit for each reply. All models that it offers can write this much.
MAX_OUTPUT_TOKENS = 8192
_NO_KEY = "none"

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


class AnthropicModel:
    """The model `settings.name` of Anthropic's API, or of a server that speaks it."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"anthropic:{self._settings.name}"

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The reply to `request`; see `agent.protocols.Model`."""
        return await reply_from(self._events(request), _Stream(), on_text, self._settings, "anthropic")

    async def _events(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        """The stream's events. Raises ModelFailed for all that can go wrong on the way."""
        key = await self._settings.key.read()
        anthropic = load_extra(_EXTRA, "anthropic")
        httpx = load_extra(_EXTRA, "httpx2")
        settings = self._settings
        url = settings.base_url or DEFAULT_URL
        with failures.as_model_failures(anthropic, httpx, settings, url):
            async with (
                anthropic.AsyncAnthropic(
                    # Given here, so that the SDK looks for no other in the environment or in a profile of its own.
                    api_key=key or _NO_KEY,
                    base_url=url,
                    max_retries=0,
                    timeout=httpx.Timeout(settings.silence, connect=failures.CONNECT_SECONDS),
                    http_client=bounded_client(anthropic),
                ) as client,
                await client.messages.create(**self._body(request)) as stream,
            ):
                async for event in stream:
                    yield event

    def _body(self, request: ModelRequest) -> Doc:
        settings = self._settings
        body: Doc = {
            "model": settings.name,
            "max_tokens": settings.max_output_tokens or MAX_OUTPUT_TOKENS,
            "messages": _messages(request.messages),
            "stream": True,
        }
        if request.system:
            body["system"] = request.system
        if tools := _tools(request, may_ask=settings.may_ask):
            body["tools"] = tools
        if settings.temperature is not None:
            # The SDK knows no such parameter any more; the API still takes it for the models that have one.
            body["extra_body"] = {"temperature": settings.temperature}
        if request.reply_schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.reply_schema}}
        return body


def _messages(messages: Iterable[ChatMessage]) -> list[Doc]:
    """The messages by turns of the two roles, as the API wants them; results go first in the user's turn."""
    turns: list[Doc] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": "(The conversation goes on.)"}]})
    return turns


def _blocks(message: ChatMessage) -> Iterable[Doc]:
    if message.role == "tool":
        call_id = sent_name(message.call_id or "")
        yield {"type": "tool_result", "tool_use_id": call_id, "content": message.text or "(nothing)"}
        return
    # A block of white space alone is refused.
    if message.text.strip():
        yield {"type": "text", "text": message.text}
    for call in message.calls:
        call_id, name = sent_name(call.call_id), sent_name(call.name)
        yield {"type": "tool_use", "id": call_id, "name": name, "input": sent_arguments(call)}


def _tools(request: ModelRequest, *, may_ask: bool) -> list[Doc]:
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    if may_ask and request.reply_schema is None and ASK_USER not in {tool.name for tool in request.tools}:
        tools.append((ASK_USER, ASK_USER_DESCRIPTION, ASK_USER_PARAMETERS))
    return [
        {"name": name, "description": description, "input_schema": {"type": "object"} | dict(parameters)}
        for name, description, parameters in tools
    ]


class _Stream:
    """Puts a reply together from its events."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, StreamedCall] = {}
        self._reason: str | None = None
        self._usage: Doc = {}

    def take(self, event: Any) -> str:
        """Adds an event; returns the text in it."""
        text = ""
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                call = self._calls[event.index] = StreamedCall()
                call.call_id, call.name = event.content_block.id, event.content_block.name
            case "content_block_delta" if event.delta.type == "text_delta":
                text = event.delta.text
            case "content_block_delta" if event.delta.type == "input_json_delta" and event.index in self._calls:
                self._calls[event.index].arguments.append(event.delta.partial_json)
            case "message_delta":
                self._reason = event.delta.stop_reason or self._reason
                self._count(event.usage)
            case _:
                pass
        self._text.append(text)
        return text

    def ended(self) -> Ended:
        """What the stream has brought."""
        calls = tuple(call.whole() for call in self._calls.values())
        reason = _STOP_REASONS.get(self._reason, "end_turn") if self._reason else None
        return Ended("".join(self._text), calls, reason, self._counted())

    def _count(self, usage: Any) -> None:
        # Cumulative: the last word on each count is the right one.
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            number = getattr(usage, name, None)
            if number is not None:
                self._usage[name] = number

    def _counted(self) -> Doc | None:
        if "input_tokens" not in self._usage and "output_tokens" not in self._usage:
            return None
        read = self._usage.get("cache_read_input_tokens") or 0
        written = self._usage.get("cache_creation_input_tokens") or 0
        # The API counts what came from its cache apart; a budget of tokens is about all of them.
        counted: Doc = {
            "inputTokens": self._usage.get("input_tokens", 0) + read + written,
            "outputTokens": self._usage.get("output_tokens", 0),
        }
        cached = {"cacheReadTokens": read, "cacheWriteTokens": written}
        return counted | {name: number for name, number in cached.items() if number}
