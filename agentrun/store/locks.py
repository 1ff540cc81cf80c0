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

# A prober of the executor's lock holds it for an instant; whoever claims a run waits that long for it.
CLAIM_PATIENCE = 1.0
# What the holders of a lock that many sessions share do takes milliseconds; this is for a crowd of them on a slow disk.
SHARED_PATIENCE = 5.0
_RETRY = 0.005
# Seconds of waiting for a session's lock after which it is looked at who holds it, and again after each of these:
# nobody who is well holds it that long, unless the disk is slow.
LOCK_PATIENCE = 2.0
_LOCKS = "/proc/locks"

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

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.thread: int | None = None
        self.users = 0


@contextmanager
def session_lock(directory: Directory, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the session's lock. Never across a model call, a tool, a sleep or a callback.

    `on_wait` is called every `LOCK_PATIENCE` seconds as long as another process holds it, and may raise.
    Raises AgentrunError at once when this thread holds it already: waiting for oneself would never end.
    """
    with speaking_of(directory.path):
        found = os.fstat(directory.fd)
    with _thread_lock((found.st_dev, found.st_ino), directory.path):
        fd = _open_again(directory)
        pid = os.getpid()
        try:
            _lock_patiently(fd, directory.path, on_wait)
            yield
        finally:
            # A forked child shares the lock; its copy must not let the parent's go.
            if os.getpid() == pid:
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _lock_patiently(fd: int, path: str, on_wait: Callable[[], None]) -> None:
    patience = time.monotonic() + LOCK_PATIENCE
    with speaking_of(path):
        while not _lock_now(fd):
            if time.monotonic() >= patience:
                on_wait()
                patience = time.monotonic() + LOCK_PATIENCE
            time.sleep(_RETRY)


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
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fd)


@contextmanager
def _thread_lock(key: tuple[int, int], path: str) -> Iterator[None]:
    with _guard:
        entry = _in_process.setdefault(key, _InProcess())
        if entry.thread == _thread.get_ident():
            raise AgentrunError(f"{path}: this thread holds the session's lock already")
        entry.users += 1
    entry.lock.acquire()
    entry.thread = _thread.get_ident()
    try:
        yield
    finally:
        entry.thread = None
        entry.lock.release()
        with _guard:
            entry.users -= 1
            if not entry.users:
                _in_process.pop(key, None)
