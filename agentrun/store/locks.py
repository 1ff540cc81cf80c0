"""The two kernel locks: `flock` on the session's directory, and on the run's directory for its executor's lifetime.

A lock on the directory itself leaves no lock file that somebody could delete, and `flock DIRECTORY COMMAND` of a shell
joins in. The kernel frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentrun.errors import AgentrunError
from agentrun.store.disk import Directory, speaking_of
from agentrun.store.lock_queue import wait_for_lock

# A prober of the executor's lock holds it for an instant; whoever claims a run waits that long for it.
CLAIM_PATIENCE = 1.0
# What the holders of a lock that many sessions share do takes milliseconds; this is for a crowd of them on a slow disk.
SHARED_PATIENCE = 5.0
_RETRY = 0.005
# Seconds of waiting for a session's lock after which it is looked at who holds it, and again after each of these:
# nobody who is well holds it that long, unless the disk is slow.
LOCK_PATIENCE = 2.0
_LOCKS = "/proc/locks"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_guard = _thread.allocate_lock()
# By device and inode: two handles of one directory, or one through a link, are the same lock.
_in_process: dict[tuple[int, int], _InProcess] = {}


class Held:
    """Says that this thread holds a session's lock: what writes takes one, so that it cannot be called without."""

    def __init__(self) -> None:
        # The runs whose cancel sentinel was looked for in this hold. A file can be touched without the lock: it is
        # looked for once, or a run could be stopped between what was decided here and what is written for that.
        self.looked_for_stop: set[str] = set()


class _InProcess:
    """flock(2) does not keep the threads of one process apart in a way that they could see; this does."""

    __slots__ = ("lock", "thread", "users")

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.thread: int | None = None
        self.users = 0


class session_lock:
    """Holds the session's lock, as a context. Never across a model call, a tool, a sleep or a callback.

    `on_wait` is called every `LOCK_PATIENCE` seconds as long as another process holds it, and may raise. `check` is
    called once with the lock held, with what fstat(2) said of the directory; if it raises, the lock is let go.
    Entering raises AgentrunError at once when this thread holds it already: waiting for oneself would never end.
    """

    # No generator: an executor passes here for every event.
    __slots__ = ("_check", "_directory", "_entry", "_fd", "_has_waited", "_key", "_on_wait", "_pid")

    def __init__(
        self,
        directory: Directory,
        on_wait: Callable[[], None] = lambda: None,
        check: Callable[[os.stat_result], None] | None = None,
    ) -> None:
        self._directory = directory
        self._on_wait = on_wait
        self._check = check

    def __enter__(self) -> None:
        directory = self._directory
        with speaking_of(directory.path):
            found = os.fstat(directory.fd)
            self._key = (found.st_dev, found.st_ino)
            self._entry = _enter_thread(self._key, directory.path)
            self._fd = -1
            self._has_waited = False
            self._pid = os.getpid()
            try:
                self._fd = os.open(".", _DIRECTORY, dir_fd=directory.fd)
                if not _lock_now(self._fd):
                    self._wait()
                if self._check:
                    self._check(found)
            except BaseException:
                self._let_go()
                raise

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def _wait(self) -> None:
        self._has_waited = True
        fd, self._fd = self._fd, -1
        wait_for_lock(fd, LOCK_PATIENCE, self._on_wait)
        self._fd = fd

    def _let_go(self) -> None:
        try:
            if self._fd >= 0:
                # A forked child shares the lock; its copy must not let the parent's go.
                if os.getpid() == self._pid:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                os.close(self._fd)
                if self._has_waited:
                    # There may be a crowd: who is next must be awake before this process comes back for more.
                    os.sched_yield()
        finally:
            _leave_thread(self._key, self._entry)


def _lock_now(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holder(directory: Directory) -> int | None:
    """The process with the exclusive lock on `directory`; None if there is none or nobody can tell (proc_locks(5))."""
    with speaking_of(directory.path):
        inode = os.fstat(directory.fd).st_ino
    try:
        with open(_LOCKS, encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    # `1: FLOCK ADVISORY WRITE 4121 08:02:131 0 EOF`; one that waits has `->` behind its number.
    for fields in lines:
        if fields[1:4:2] == ["FLOCK", "WRITE"] and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None


def take_liveness(directory: Directory) -> int | None:
    """The executor's lock on the run's directory, as a descriptor to keep open; None if an executor holds it."""
    fd = _open_again(directory)
    patience = time.monotonic() + CLAIM_PATIENCE
    with speaking_of(directory.path):
        while not _lock_now(fd):
            if time.monotonic() >= patience:
                os.close(fd)
                return None
            time.sleep(_RETRY)
    return fd


def open_liveness(directory: Directory) -> int:
    """A descriptor by which the executor's lock can be had once somebody else lets it go: see `has_liveness`."""
    return _open_again(directory)


def has_liveness(directory: Directory, fd: int) -> bool:
    """Whether the executor's lock on `directory` is held by `fd`; it is taken if it is free."""
    with speaking_of(directory.path):
        return _lock_now(fd)


@contextmanager
def directory_lock(directory: Directory) -> Iterator[bool]:
    """Holds the lock of a directory that many sessions share, for an instant; False if it cannot be had in time.

    Its holder may be frozen, and must not freeze everybody else.
    """
    fd = _open_again(directory)
    patience = time.monotonic() + SHARED_PATIENCE
    try:
        with speaking_of(directory.path):
            is_locked = _lock_now(fd)
            while not is_locked and time.monotonic() < patience:
                time.sleep(_RETRY)
                is_locked = _lock_now(fd)
        yield is_locked
    finally:
        os.close(fd)


def is_executor_alive(directory: Directory) -> bool:
    """Whether some process holds the executor's lock now."""
    if not directory.is_there():
        return False
    fd = _open_again(directory)
    try:
        with speaking_of(directory.path):
            try:
                # Shared: two probes at once must not take each other for an executor.
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    finally:
        os.close(fd)


def _open_again(directory: Directory) -> int:
    """A descriptor of its own: locks belong to the open file, so each holder needs one."""
    with speaking_of(directory.path):
        return os.open(".", _DIRECTORY, dir_fd=directory.fd)


def _enter_thread(key: tuple[int, int], path: str) -> _InProcess:
    """Keeps the other threads of this process out until `_leave_thread`."""
    with _guard:
        entry = _in_process.get(key)
        if entry is None:
            entry = _in_process[key] = _InProcess()
        elif entry.thread == _thread.get_ident():
            raise AgentrunError(f"{path}: this thread holds the session's lock already")
        entry.users += 1
    try:
        entry.lock.acquire()
    except BaseException:
        _forget(key, entry)
        raise
    entry.thread = _thread.get_ident()
    return entry


def _leave_thread(key: tuple[int, int], entry: _InProcess) -> None:
    entry.thread = None
    entry.lock.release()
    _forget(key, entry)


def _forget(key: tuple[int, int], entry: _InProcess) -> None:
    with _guard:
        entry.users -= 1
        if not entry.users:
            _in_process.pop(key, None)
