"""A reply from the stream that brings it, the same whoever sends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from agentrun.adapters.models.prices import with_cost
from agentrun.adapters.models.settings import ModelSettings
from agentrun.adapters.models.wire import Ended, reply_of
from agentrun.agent.protocols import ModelFailed, ModelReply
from agentrun.records.usage import told_usage

# Characters of a reply, as of any other agent's turn: twenty times the longest of today's models.
MOST_TEXT = 8 * 1024 * 1024


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
    length = 0
    async with aclosing(pieces):
        async for piece in pieces:
            with _of_the_known_form(settings):
                text = "".join((collector.take(piece),))
            length += len(text)
            if length > MOST_TEXT:
                raise ModelFailed(f"its reply does not end: it has more than {MOST_TEXT} characters", retryable=False)
            if text:
                await on_text(text)
    with _of_the_known_form(settings):
        ended = collector.ended()
    reply = reply_of(ended, may_lack_reason=settings.finish_reason == "optional")
    priced_by = None if settings.base_url else provider
    return reply._replace(
        usage=with_cost(told_usage(reply.usage), settings.name, provider=priced_by, base_url=settings.base_url)
    )


@contextmanager
def _of_the_known_form(settings: ModelSettings) -> Iterator[None]:
    """The SDKs take what a server sends without a look: a list may be a number there, and a text an object."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        what = settings.redact(f"the stream is broken: what came has another form ({error})")
        raise ModelFailed(what[:2000], retryable=True) from error
