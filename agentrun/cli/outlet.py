"""What is said while a run goes on, in order, to a reader who may stall, go away, or have no room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from agentrun.cli import output
from agentrun.cli.output import ReaderGone
from agentrun.errors import StorageFailed


class Outlet:
    """Writes to descriptor `fd`. That it cannot be written ends the writing and nothing else; a `failure` is kept.

    One that is not `patient` writes in a thread of its own: an executor that waited for a pager, or for a terminal
    under Ctrl-S, would hold the session's lock for as long, and nobody could stop its run.
    """

    def __init__(self, fd: int, *, patient: bool) -> None:
        self._is_open = True
        self.failure: StorageFailed | None = None
        self._fd = fd
        self._patient = patient
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_read(self) -> bool:
        """Whether somebody may read what is written: also one who left in silence is noticed here."""
        return self._is_open and not output.is_left(self._fd)

    def write(self, text: str, /) -> None:
        """Says it."""
        self.write_bytes(text.encode("utf-8", "replace"))

    def write_bytes(self, data: bytes) -> None:
        """As `write`, for what is encoded already."""
        if self._patient:
            self._write_now(data)
            return
        if self._thread is None:
            self._thread = self._writer()
        if self._thread is None:
            self._write_now(data)
        else:
            self._waiting.put(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def drain(self) -> None:
        """Returns when everything is written, or cannot be."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def attempt(self, say: Callable[[], None]) -> None:
        """Calls `say`, which writes to standard output itself, and takes what it raises for what became of that."""
        try:
            if self._is_open:
                say()
        except ReaderGone:
            self._is_open = False
        except StorageFailed as error:
            self._is_open, self.failure = False, error

    def _writer(self) -> threading.Thread | None:
        """A thread that writes; None where there is none to be had, and who says something waits until it is said."""
        thread = threading.Thread(target=self._write_all, name="agentrun-outlet", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._patient = True
            return None
        return thread

    def _write_all(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._write_now(data)

    def _write_now(self, data: bytes) -> None:
        self.attempt(lambda: output.write(self._fd, data))
