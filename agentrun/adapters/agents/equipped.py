"""An agent whose tools come from servers: they are started before it, and ended after it whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from agentrun.adapters.mcp.server import Connection, McpServer, Unusable
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
        held = [_Held(server) for server in self._servers]
        try:
            async with anyio.create_task_group() as group:
                for each in held:
                    group.start_soon(each.hold)
                try:
                    await self._work(stretch, held)
                finally:
                    for each in held:
                        each.let_go()
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None

    async def _work(self, stretch: Stretch, held: Sequence[_Held]) -> None:
        async def on_progress(operation_id: str, text: str) -> None:
            await stretch.record(ToolProgressed(operation_id, text))

        tools = list(self._tools)
        for each in held:
            tools += tools_of(await each.connection(stretch), on_progress)
        twice = _collision(tools)
        if twice:
            await stretch.fail(f"two tools are called {twice!r}; rename one of them, or its MCP server")
        await self._make(tools).run(stretch)


class _Held:
    """A connection, held by a task that a stop of the agent does not reach: the server must still hear of the stop."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._failure: str | None = None
        self._scope: anyio.CancelScope | None = None
        self._ready = anyio.Event()
        self._done = anyio.Event()

    async def connection(self, stretch: Stretch) -> Connection:
        """The connection; fails the run if the server cannot be used."""
        await self._ready.wait()
        if self._connection is None:
            await stretch.fail(f"the MCP server {self._server.config.name!r} cannot be used: {self._failure}")
        return self._connection

    def let_go(self) -> None:
        """The agent needs it no more."""
        self._done.set()
        if self._scope and not self._ready.is_set():
            self._scope.cancel()

    async def hold(self) -> None:
        """Connects, waits until nobody needs the connection, and ends it."""
        with anyio.CancelScope(shield=True) as self._scope:
            try:
                async with self._server.connected() as self._connection:
                    self._ready.set()
                    await self._done.wait()
            # A server, and the library that speaks with it, are foreign code: what they raise ends this connection.
            except Exception as error:  # noqa: BLE001
                self._failure = _reason(error)
                if self._connection:
                    self._connection.lost(self._failure)
            self._ready.set()


def _reason(error: Exception) -> str:
    one = the_one(error) if isinstance(error, ExceptionGroup) else error
    return str(one) if isinstance(one, Unusable) else f"{type(one).__name__}: {one}"


def _collision(tools: Sequence[Tool]) -> str | None:
    names = [tool.spec.name for tool in tools]
    return next((name for name in names if names.count(name) > 1), None)
