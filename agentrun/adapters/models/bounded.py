"""What is taken of an answer: as much as fits into memory, and from nobody but the endpoint that is configured.

A server may send without end, and what is read lies in this process's memory. It may also send the request on, to
anybody: the HTTP library would follow with the whole conversation, and with a key that is in a header of its own.
"""

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


class Unacceptable(ValueError):
    """What the server answers is not taken."""


class TooMuch(Unacceptable):
    """The server has sent more than is read of one answer."""


class SentElsewhere(Unacceptable):
    """The server wants another one to be asked."""


def bounded_client(sdk: Any) -> Any:
    """A client for HTTP as the SDK makes it, that raises Unacceptable: in the middle of an answer that does not end,
    and for one that leads to another server."""
    return sdk.DefaultAsyncHttpxClient(event_hooks={"response": [_stay, _bound]})


async def _stay(response: Any) -> None:
    if not response.has_redirect_location:
        return
    asked = response.request.url
    target = asked.join(response.headers["location"])
    is_upgrade = (asked.scheme, target.scheme, asked.port, target.port) == ("http", "https", None, None)
    if asked.host != target.host or ((asked.scheme, asked.port) != (target.scheme, target.port) and not is_upgrade):
        # Without what may be secret in it, or is only there for this request.
        place = target.copy_with(userinfo=b"", query=None, fragment=None)
        raise SentElsewhere(f"it sends on to {place}, which is not asked; if that is right, name it as base_url")


async def _bound(response: Any) -> None:
    # JSON and events are UTF-8, whatever the server calls them: Python knows encodings that are none of a text.
    response.encoding = "utf-8"
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
