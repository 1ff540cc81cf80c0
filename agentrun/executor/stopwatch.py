"""Counts the time spent executing, on a clock that stands still while the machine sleeps."""

from __future__ import annotations

from agentrun import clock


class Stopwatch:
    """Runs between `start` and `take`; what was taken is recorded by whoever took it."""

    def __init__(self) -> None:
        self._since: float | None = None

    def start(self) -> None:
        """Counts from now on."""
        self._since = clock.awake_seconds()

    def seconds(self) -> float | None:
        """Seconds since `start`; None while it stands."""
        return None if self._since is None else clock.awake_seconds() - self._since

    def take(self) -> int:
        """Milliseconds since `start`, to be recorded; the watch stands from now on."""
        spent = self.seconds() or 0.0
        self._since = None
        return int(spent * 1000)
