"""What an agent needs while it works, held by a task that a stop does not reach.

A server, or an agent of another program, must still be told of the stop before it is ended. So its connection lives in
a task of its own, which ends it when the agent has let go of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio

from agentrun.agent.batch import the_one

T = TypeVar("T")


class Unusable(Exception):
    """What is needed cannot be started, reached or understood; says why."""


class Held(Generic[T]):
    """What `opened` opens, and closes again. `on_lost` is told if it breaks meanwhile, and why."""

    def __init__(
        self, opened: Callable[[], AbstractAsyncContextManager[T]], on_lost: Callable[[T, str], None] = lambda *_: None
    ) -> None:
        self._opened = opened
        self._on_lost = on_lost
        self._it: T | None = None
        self._failure = ""
        self._scope: anyio.CancelScope | None = None
        self._ready = anyio.Event()
        self._done = anyio.Event()

    async def get(self) -> T:
        """What was opened. Raises Unusable if it could not be."""
        await self._ready.wait()
        if self._it is None:
            raise Unusable(self._failure)
        return self._it

    def let_go(self) -> None:
        """It is needed no more."""
        self._done.set()
        if self._scope and not self._ready.is_set():
            self._scope.cancel()

    async def hold(self) -> None:
        """Opens it, waits until nobody needs it, and closes it."""
        with anyio.CancelScope(shield=True) as self._scope:
            try:
                async with self._opened() as self._it:
                    self._ready.set()
                    await self._done.wait()
            # It is foreign code, and so is the library that speaks with it: what they raise ends this connection.
            except Exception as error:  # noqa: BLE001
                self._failure = _reason(error)
                if self._it is not None:
                    self._on_lost(self._it, self._failure)
            self._ready.set()


def _reason(error: Exception) -> str:
    one = the_one(error) if isinstance(error, ExceptionGroup) else error
    return str(one) if isinstance(one, Unusable) else f"{type(one).__name__}: {one}"
