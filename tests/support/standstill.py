"""Time-outs that come right after a process is ready for them, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")
# Steps of the event loop in which whatever is begun has started its process.
_STEPS = 10


def run_once_ready(ready: Callable[[], bool], work: Callable[[], Awaitable[T]]) -> T:
    """What `work` comes to, an event loop of its own driving it.

    The whole loop stands still from when `work` has started its process until that is `ready`: no time is up before.
    """
    results: list[T] = []

    async def do() -> None:
        results.append(await work())

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(do)
            for _ in range(_STEPS):
                await anyio.lowlevel.checkpoint()
            while not ready():
                time.sleep(0.002)  # noqa: ASYNC251 - that is the point

    anyio.run(main)
    return results[0]
