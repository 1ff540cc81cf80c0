"""An agent whose tools come from servers: they are started before it, and ended after it whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from agentrun.adapters.agents.held import Held, Unusable
from agentrun.adapters.mcp.server import Connection, McpServer
from agentrun.adapters.mcp.tools import tools_of
from agentrun.agent.batch import the_one
from agentrun.agent.events import ToolProgressed
from agentrun.agent.protocols import Agent, Stretch, Tool


class EquippedAgent:
    """`make` makes the agent once its tools are known: those of the `servers`, after the ones that it has anyway."""

    def __init__(
        self, make: Callable[[Sequence[Tool]], Agent], tools: Sequence[Tool], servers: Sequence[McpServer]
    ) -> None:
        self._make = make
        self._tools = tools
        self._servers = servers

    async def run(self, stretch: Stretch) -> None:
        """Works until the report is committed, or fails the run if a server cannot be used."""
        held = {server.config.name: Held(server.connected, Connection.lost) for server in self._servers}
        try:
            async with anyio.create_task_group() as group:
                for each in held.values():
                    group.start_soon(each.hold)
                try:
                    await self._work(stretch, held)
                finally:
                    for each in held.values():
                        each.let_go()
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None

    async def _work(self, stretch: Stretch, held: dict[str, Held[Connection]]) -> None:
        async def on_progress(operation_id: str, text: str) -> None:
            await stretch.record(ToolProgressed(operation_id, text))

        tools = list(self._tools)
        for server in self._servers:
            name = server.config.name
            try:
                tools += tools_of(await held[name].get(), on_progress)
            except Unusable as error:
                await stretch.fail(f"the MCP server {name!r} cannot be used: {server.without_secrets(str(error))}")
        twice = _collision(tools)
        if twice:
            await stretch.fail(f"two tools are called {twice!r}; rename one of them, or its MCP server")
        await self._make(tools).run(stretch)


def _collision(tools: Sequence[Tool]) -> str | None:
    known: set[str] = set()
    for name in (tool.spec.name for tool in tools):
        if name in known:
            return name
        known.add(name)
    return None
