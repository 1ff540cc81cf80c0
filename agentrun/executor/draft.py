"""The draft of the reply under way, written down as it streams in."""

from __future__ import annotations

import time

from agentrun.records.lease import Lease
from agentrun.store.runs import RunDir
from agentrun.store.writer import Writer

# Seconds between two writings: viewers follow the text by eye, the disk should not feel it.
INTERVAL = 0.05


class Draft:
    """Collects streamed text; `is_due` says when it is time to `write` it."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._operation_id: str | None = None
        self._fresh = False
        self._rest = ""
        self._written = 0.0

    def add(self, operation_id: str, text: str) -> None:
        """More text of that model request; the first of another request begins the draft anew."""
        if operation_id != self._operation_id:
            self._operation_id, self._fresh, self._rest = operation_id, True, ""
        self._rest += text

    @property
    def is_due(self) -> bool:
        """Whether the draft on disk lags behind for longer than a viewer would like."""
        return bool(self._rest) and time.monotonic() - self._written >= INTERVAL

    def write(self, writer: Writer, lease: Lease) -> None:
        """Writes down what has come since the last time. Raises FencedOut."""
        if self._rest:
            self._run_dir.write_draft(lease, writer, self._rest, fresh=self._fresh)
            self._fresh, self._rest, self._written = False, "", time.monotonic()
