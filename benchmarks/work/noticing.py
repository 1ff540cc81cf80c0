"""A plug-in tool that waits inside the executor, and notes when that stops it: the executor has seen the stop then."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import anyio

from agentrun.adapters.plugins import ToolSettings
from agentrun.agent.protocols import Invocation, ToolOutcome


class Noticing:
    """Writes the monotonic time, in nanoseconds, into `noticed` beside the configuration."""

    def __init__(self, settings: ToolSettings) -> None:
        self.spec = settings.spec
        self._path = os.path.join(settings.directory, "noticed")

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """Never ends by itself."""
        try:
            await anyio.sleep_forever()
        finally:
            self._note(time.monotonic_ns())
        raise AssertionError("nothing wakes it but a stop")

    def _note(self, noticed: int) -> None:
        with open(f"{self._path}.new", "w", encoding="ascii") as file:
            file.write(str(noticed))
        os.rename(f"{self._path}.new", self._path)
