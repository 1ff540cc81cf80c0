"""The messages of an editor, over standard input and output: one JSON object a line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agentrun.records.rpc import message_of

# JSON-RPC 2.0, section 5.1.
_PARSE_ERROR = -32700


class EditorTransport:
    """The `Transport` of the library. What is no message is answered so, and costs itself alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: dict[str, Any]) -> None:
        """Writes a message. Raises ConnectionError when the editor reads no more."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self._writer.write(text.encode("utf-8", "replace") + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when there is none any more."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # it was longer than the reader's limit, and is lost
                await self._refuse("this line is too long")
                continue
            if not line:
                return None
            message = message_of(line)
            if message is not None:
                return message
            if line.strip():
                await self._refuse("this is no message: one JSON object a line, please")

    async def close(self) -> None:
        """Nothing to do: the streams are the process's own."""

    async def _refuse(self, reason: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": reason}})
