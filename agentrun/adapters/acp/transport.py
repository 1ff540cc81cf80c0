"""The messages of the protocol over a program's stdin and stdout: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agentrun.adapters.process import Peer
from agentrun.adapters.process.output import Lines
from agentrun.records.rpc import answer_of

# A message may hold a whole file.
LINE_BYTES = 256 * 1024 * 1024


class PeerTransport:
    """The `Transport` of the library, over a `Peer`."""

    def __init__(self, peer: Peer, make_room: Callable[[], Awaitable[None]]) -> None:
        self._peer = peer
        self._make_room = make_room
        self._lines = Lines(LINE_BYTES)

    async def send(self, message: dict[str, Any]) -> None:
        """Writes a message. Raises ConnectionError when the program reads no more."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        await self._peer.send(text.encode("utf-8", "replace") + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when there is none any more. What is none is passed over: some print greetings."""
        while True:
            while self._lines.complete:
                await self._make_room()
                message = answer_of(self._lines.complete.popleft())
                if message is not None:
                    return message
            chunk = await self._peer.receive()
            if not chunk or self._lines.dropped:
                return None  # an answer that was too long is lost: nobody must wait for it for ever
            self._lines.write(chunk)

    async def close(self) -> None:
        """Nothing to do: the program is ended by whoever started it."""
