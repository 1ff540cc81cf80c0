"""An agent whose model or tools hold something for as long as it works: a server, a connection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from agentrun.agent.protocols import Agent, Opened, Stretch


class OpenedAgent:
    """`agent`, inside the blocks of `parts`: they are left whatever happens, the last one first."""

    def __init__(self, agent: Agent, parts: Sequence[Opened]) -> None:
        self._agent = agent
        self._parts = parts

    async def run(self, stretch: Stretch) -> None:
        """As the agent's own."""
        async with AsyncExitStack() as stack:
            for part in self._parts:
                await stack.enter_async_context(part.opened())
            await self._agent.run(stretch)
