"""How much of an answer is read: a server may send without end, and what is read lies in this process's memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

# Bytes of an answer: the longest replies of today's models, some 128,000 tokens of which each comes in an event of its
# own, are a third of it.
MOST_BYTES = 128 << 20
# Bytes of one event of it, and of an answer that is no stream of events.
MOST_EVENT_BYTES = 16 << 20
# What ends an event (https://html.spec.whatwg.org/multipage/server-sent-events.html).
_ENDS = (b"\n\n", b"\r\r", b"\n\r\n")


class TooMuch(ValueError):
    """The server has sent more than is read of one answer."""


def bounded_client(sdk: Any) -> Any:
    """A client for HTTP as the SDK makes it, that raises TooMuch in the middle of an answer that does not end."""
    return sdk.DefaultAsyncHttpxClient(event_hooks={"response": [_bound]})


async def _bound(response: Any) -> None:
    read = response.aiter_bytes

    async def bounded(chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        total, event, end = 0, 0, b""
        async with aclosing(read(chunk_size)) as pieces:
            async for piece in pieces:
                total += len(piece)
                event = _length_of_last_event(end, piece, event)
                end = piece[-2:]
                if total > MOST_BYTES or event > MOST_EVENT_BYTES:
                    most = MOST_BYTES if total > MOST_BYTES else MOST_EVENT_BYTES
                    raise TooMuch(f"its answer does not end: {most >> 20} MiB were read")
                yield piece

    # What it yields is unpacked already: a small answer may be a large one that was compressed.
    response.aiter_bytes = bounded


def _length_of_last_event(end: bytes, piece: bytes, length: int) -> int:
    """Bytes since an event ended, once `piece` has come behind `length` bytes of which `end` are the last."""
    whole = end + piece
    at = max(whole.rfind(each) for each in _ENDS)
    return length + len(piece) if at < 0 else len(whole) - at
