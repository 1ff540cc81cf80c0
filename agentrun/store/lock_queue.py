"""Waiting for a lock of the kernel in its queue, and looking around now and then.

A waiter that tries again and again gets a lock by luck, and in a crowd some get it far more often than others. The
kernel has a queue, but flock(2) that blocks has no time limit; so a thread blocks in it, and the one that needs the
lock waits for that thread. The thread stays for the next wait: a crowd waits for every record.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds after which a thread that nobody needed ends.
_IDLE = 1.0
_idle: list[_Waiter] = []


def wait_for_lock(fd: int, patience: float, on_wait: Callable[[], None]) -> None:
    """Returns once `fd` has its lock exclusively; `on_wait` is called every `patience` seconds until then.

    Raises what `on_wait` does, or OSError; then `fd` is closed, or will be.
    """
    waiting = _Waiting(fd)
    try:
        _begin(waiting)
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
        """Waits in the kernel's queue, in another thread than the one that needs the lock."""
        with self._guard:
            if self._is_given_up:
                return
            self._is_blocking = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self.error = error
        self._leave()

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


class _Waiter:
    """A thread that blocks for others, one wait after the other. It keeps no process from ending."""

    def __init__(self) -> None:
        self.waiting: _Waiting | None = None
        self.is_wanted = _thread.allocate_lock()
        self.is_wanted.acquire()

    def run(self) -> None:
        while True:
            waiting, self.waiting = self.waiting, None
            assert waiting is not None
            waiting.block()
            # Ready before the one that waits goes on: the next wait finds this thread.
            _idle.append(self)
            waiting.is_done.release()
            del waiting
            if not self.is_wanted.acquire(timeout=_IDLE) and self._is_out_of_work():
                return

    def _is_out_of_work(self) -> bool:
        try:
            _idle.remove(self)
        except ValueError:
            # Somebody has just taken it from the list, and is about to say for what.
            self.is_wanted.acquire()
            return False
        return True


def _begin(waiting: _Waiting) -> None:
    # Each step on the list is one that no other thread comes between.
    try:
        waiter = _idle.pop()
    except IndexError:
        waiter = _Waiter()
        waiter.waiting = waiting
        _thread.start_new_thread(waiter.run, ())
    else:
        waiter.waiting = waiting
        waiter.is_wanted.release()


# Threads are not inherited.
os.register_at_fork(after_in_child=_idle.clear)
