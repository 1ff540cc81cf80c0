"""A reply from the stream that brings it, the same whoever sends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

from agentrun.adapters.models.prices import with_cost
from agentrun.adapters.models.settings import ModelSettings
from agentrun.adapters.models.wire import Ended, reply_of
from agentrun.agent.protocols import ModelReply


class Collector(Protocol):
    """Puts a reply together from the pieces of one provider's stream."""

    def take(self, piece: Any) -> str:
        """Adds a piece; returns the text in it."""

    def ended(self) -> Ended:
        """All that came, once the stream has ended."""


async def reply_from(
    pieces: AsyncGenerator[Any, None],
    collector: Collector,
    on_text: Callable[[str], Awaitable[None]],
    settings: ModelSettings,
    provider: str,
) -> ModelReply:
    """The whole reply, its text handed on as it comes; `provider` has the prices where no other endpoint is named.

    The stream is closed whatever happens. Raises ModelFailed.
    """
    async with aclosing(pieces):
        async for piece in pieces:
            text = collector.take(piece)
            if text:
                await on_text(text)
    reply = reply_of(collector.ended(), may_lack_reason=settings.finish_reason == "optional")
    priced_by = None if settings.base_url else provider
    return reply._replace(usage=with_cost(reply.usage, settings.name, provider=priced_by, base_url=settings.base_url))
