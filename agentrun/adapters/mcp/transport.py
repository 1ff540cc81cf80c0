"""The messages of the protocol over a program's stdin and stdout: one JSON object a line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from agentrun.adapters.process import Peer
from agentrun.adapters.process.output import Lines

# A result may be that long. What is longer is no message that anybody could do something with.
LINE_BYTES = 256 * 1024 * 1024
# What comes before the tools are known. Nothing else happens while a message is read, and this takes about two seconds.
LISTING_BYTES = 4 * 1024 * 1024


class Broken(Exception):
    """The server speaks so that nobody can go on with it."""


@asynccontextmanager
async def over(peer: Peer) -> AsyncIterator[tuple[Any, Any, Lines]]:
    """Streams of messages from and to `peer`. The first ends when the program ends or speaks no protocol any more.

    The lines that messages come in have `LISTING_BYTES` at most, until the limit is changed.
    """
    lines = Lines(LISTING_BYTES)
    to_us, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_us = anyio.create_memory_object_stream[Any](0)
    async with from_server, to_server, anyio.create_task_group() as group:
        group.start_soon(_receive, peer, to_us, lines)
        group.start_soon(_send, peer, from_us, to_us)
        yield from_server, to_server, lines
        group.cancel_scope.cancel()


async def _receive(peer: Peer, to_us: Any, lines: Lines) -> None:
    async with to_us:
        while chunk := await peer.receive():
            lines.write(chunk)
            while lines.complete:
                message = _message(lines.complete.popleft())
                if message is not None:
                    await to_us.send(message)
            if lines.dropped:
                return  # an answer is lost: whoever waits for it must not wait for ever


async def _send(peer: Peer, from_us: Any, to_us: Any) -> None:
    async with from_us:
        async for message in from_us:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await peer.send(text.encode("utf-8", "replace") + b"\n")
            except OSError:
                await to_us.aclose()
                return


def _message(line: bytes) -> Any:
    """The message in the line, or None: some servers print their greetings there."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    try:
        # Bytes that are no text would lose the whole message, and its sender would wait for ever.
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace")))
    except ValidationError:
        return None
