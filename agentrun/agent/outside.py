"""What is asked of the world outside about an action that nobody here can vouch for.

Whoever winds a run down, picks one up, or retries a write asks through this, and never knows how it is done.
"""

from __future__ import annotations

from typing import Protocol

from agentrun.records.findings import CancelAnswer, Probed
from agentrun.records.operation import Operation


class Outside(Protocol):
    """The systems outside that a run's actions reach. No method raises, and each is bounded in time."""

    def can_probe(self, operation: Operation) -> bool:
        """Whether somebody knows how to find out what became of it."""

    def can_cancel(self, operation: Operation) -> bool:
        """Whether somebody knows how to stop it."""

    def patience(self, operation: Operation) -> float:
        """Seconds that what was asked to stop is given until it has."""

    async def probe(self, operation: Operation) -> Probed:
        """What became of it. Asked only when nothing of ours works on it any more: else it may still happen."""

    async def cancel(self, operation: Operation) -> CancelAnswer:
        """Asks for it to be stopped."""


class Unreachable:
    """Nobody can be asked, for `reason` (the configuration is gone)."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def can_probe(self, operation: Operation) -> bool:
        """Nobody does."""
        return False

    def can_cancel(self, operation: Operation) -> bool:
        """Nobody does."""
        return False

    def patience(self, operation: Operation) -> float:
        """None is needed."""
        return 0.0

    async def probe(self, operation: Operation) -> Probed:
        """Unknown."""
        return Probed("unknown", evidence=self._reason)

    async def cancel(self, operation: Operation) -> CancelAnswer:
        """Not asked."""
        return CancelAnswer("unknown", evidence=self._reason, is_asked=False)
