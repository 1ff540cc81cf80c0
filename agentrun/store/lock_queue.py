"""Waiting for a lock of the kernel in its queue, and looking around now and then.

A waiter that tries again and again gets a lock by luck, and in a crowd some get it far more often than others. The
kernel has a queue, but flock(2) that blocks has no time limit; so a thread blocks in it, and the one that needs the
lock waits for that thread.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import fcntl
import os
from collections.abc import Callable


def wait_for_lock(fd: int, patience: float, on_wait: Callable[[], None]) -> None:
    """Returns once `fd` has its lock exclusively; `on_wait` is called every `patience` seconds until then.

    Raises what `on_wait` does, or OSError; then `fd` is closed, or will be.
    """
    waiting = _Waiting(fd)
    try:
        _thread.start_new_thread(waiting.block, ())
        while not waiting.is_done.acquire(timeout=patience):
            on_wait()
    except BaseException:
        waiting.give_up()
        raise
    if waiting.error is not None:
        os.close(fd)
        raise waiting.error


class _Waiting:
    """One wait: `is_done` is free once the lock is there, or `error`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._guard = _thread.allocate_lock()
        self._is_given_up = False
        self._is_blocking = False
        self.error: OSError | None = None
        self.is_done = _thread.allocate_lock()
        self.is_done.acquire()

    def block(self) -> None:
        """Runs in a thread of its own, which keeps no process from ending."""
        with self._guard:
            if self._is_given_up:
                return
            self._is_blocking = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self.error = error
        self._leave()
        self.is_done.release()

    def _leave(self) -> None:
        with self._guard:
            self._is_blocking = False
            if self._is_given_up:
                os.close(self._fd)

    def give_up(self) -> None:
        """Nobody wants the lock any more: it is let go, at once or as soon as the kernel hands it out."""
        with self._guard:
            self._is_given_up = True
            if not self._is_blocking:
                os.close(self._fd)
