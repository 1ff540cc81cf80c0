"""What a server answers over HTTP, kept within bounds: the library reads an answer whole before anybody sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

# An event of a stream ends with an empty line, and a line with CR, LF or both (the HTML standard, 9.2.6): this is how
# each of them begins.
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r", b"\r\r")


class Answers:
    """Bounds what is read of each message to `limit` bytes, which may be changed as they come.

    A message is an event of a stream, or the whole of any other answer. `dropped` counts those that were longer: they
    are broken off, and whoever waits for one of them is told.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = 0

    def bind(self, client: Any) -> None:
        """Has all that `client`, an `httpx2.AsyncClient` without hooks of its own, is answered pass through here."""
        # A few bytes that are packed may stand for any number of them, which would be unpacked unasked.
        client.headers["accept-encoding"] = "identity"
        client.event_hooks = {"response": [self._begun]}

    async def _begun(self, response: Any) -> None:
        # Python knows encodings that are none of a text; a server may call any of them its own.
        response.encoding = "utf-8"
        response.stream = _stream(self, response)


def _stream(answers: Answers, response: Any) -> Any:
    """The stream of `response`, which ends with an exception where a message in it is too long."""
    import httpx2

    base: Any = httpx2.AsyncByteStream
    # It is by these that the library tells whoever waits for the answer, and keeps the connection.
    is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    failure: Any = httpx2.SSEError if is_events else httpx2.StreamError
    packed = response.headers.get("content-encoding", "identity").lower()
    stream, size = response.stream, _SizeOfEvent() if is_events else _Size()

    class Bounded(base):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if packed != "identity":
                raise failure(f"it is packed ({packed}), though it was not asked for so")
            async for chunk in stream:
                if size.after(chunk) > answers.limit:
                    answers.dropped += 1
                    raise failure(f"the server said more than {answers.limit >> 20} MiB at once")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


class _Size:
    """How much has come."""

    def __init__(self) -> None:
        self._size = 0

    def after(self, chunk: bytes) -> int:
        """The size with `chunk`."""
        self._size += len(chunk)
        return self._size


class _SizeOfEvent(_Size):
    """How much has come of the event that is under way."""

    def __init__(self) -> None:
        super().__init__()
        # An end may come in two chunks.
        self._last = b""

    def after(self, chunk: bytes) -> int:
        """The size with `chunk`; what ended within it is no more than it."""
        text = self._last + chunk
        end = max(map(text.rfind, _ENDS_OF_EVENTS))
        self._size = len(text) - end - 2 if end >= 0 else self._size + len(chunk)
        self._last = text[-1:]
        return self._size
