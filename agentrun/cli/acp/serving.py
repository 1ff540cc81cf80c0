"""Serves one editor over stdin and stdout until it goes away."""

from __future__ import annotations

import asyncio
from typing import Any

from agentrun.cli.acp.editor import EditorTransport
from agentrun.cli.acp.server import Refusal, Server
from agentrun.cli.logs import mute_libraries
from agentrun.cli.options import Options
from agentrun.commands.execution import make_order
from agentrun.config.installing import how_to_install
from agentrun.errors import ConfigError

# A message may hold whole files.
LINE_BYTES = 256 * 1024 * 1024


def serve(options: Options, agent: str | None) -> int:
    """Serves until standard input ends. Raises ConfigError where the agent or the library is missing."""
    place = options.place()
    if agent is not None:
        make_order(place, agent, None)
    try:
        import acp  # noqa: F401  looked for here, so that what is missing is said in our words
    except ImportError as error:
        raise ConfigError("the Python package 'acp' is not installed", hint=how_to_install("acp")) from error
    mute_libraries()
    asyncio.run(_serve(Server, options, agent))
    return 0


async def _serve(make: type[Server], options: Options, agent: str | None) -> None:
    from acp import RequestError
    from acp.connection import Connection
    from acp.stdio import stdio_streams

    reader, writer = await stdio_streams(limit=LINE_BYTES)

    async def hear(method: str, params: Any, is_notification: bool) -> Any:
        try:
            return await server.serve(method, params if isinstance(params, dict) else {})
        except Refusal as refusal:
            raise RequestError(refusal.code, refusal.message, refusal.data) from refusal

    connection = Connection(hear, EditorTransport(reader, writer), listening=False)
    server = make(options.place(), agent, connection.send_notification, connection.send_request)
    try:
        await connection.main_loop()
    finally:
        # The runs go on: each has an executor of its own.
        server.leave()
        await connection.close()
