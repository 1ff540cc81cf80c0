"""The two kernel locks: `flock` on the session's directory, and on the run's directory for its executor's lifetime.

A lock on the directory itself leaves no lock file that somebody could delete, and `flock DIRECTORY COMMAND` of a shell
joins in. The kernel frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import fcntl
import os
import time
from _weakref import ReferenceType, ref  # as `threading`

from agentrun.errors import AgentrunError
from agentrun.store.disk import Directory, speaking_of, translated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

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

# Guards `_places`. One that its thread may take again: the garbage collector can end a place anywhere.
_guard = _thread.RLock()
# By device and inode: two handles of one directory, or one through a link, are the same lock.
_places: dict[tuple[int, int], ReferenceType[_Place]] = {}


class Held:
    """Says that this thread holds a session's lock: what writes takes one, so that it cannot be called without."""

    # The runs whose cancel sentinel was looked for in this hold. A file can be touched without the lock: it is looked
    # for once, or a run could be stopped between what was decided here and what is written for that.
    looked_for_stop: tuple[str, ...] = ()
    # What was left to be synced once the lock is let go, before anybody is told of it.
    owed: tuple[Callable[[], None], ...] = ()

    def pay(self, error: object) -> None:
        """Does what is owed, behind the lock; `error` is what ended the hold, and counts before what fails here."""
        owed, self.owed = self.owed, ()
        for settle in owed:
            try:
                settle()
            except AgentrunError:
                if error is None:
                    raise


class _Place:
    """A directory whose lock this process takes, for as long as a handle of it is open.

    flock(2) does not keep the threads of one process apart in a way that they could see; `lock` does. `fd` is the open
    file that the kernel's lock belongs to, or -1: kept from hold to hold, because an executor takes it for every event.
    """

    __slots__ = ("__weakref__", "fd", "key", "lock", "thread")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.lock = _thread.allocate_lock()
        self.thread: int | None = None
        self.fd = -1

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class session_lock:
    """Holds the session's lock, as a context. Never across a model call, a tool, a sleep or a callback.

    `on_wait` is called every `LOCK_PATIENCE` seconds as long as another process holds it, and may raise. `check` is
    called once with the lock held, with the device and inode of the directory; if it raises, the lock is let go.
    `every` are other seconds for `on_wait`.
    Entering raises AgentrunError at once when this thread holds it already: waiting for oneself would never end.
    """

    # No generator: an executor passes here for every event.
    __slots__ = ("_check", "_directory", "_every", "_has_waited", "_on_wait", "_place")

    def __init__(
        self,
        directory: Directory,
        on_wait: Callable[[], None] = lambda: None,
        check: Callable[[tuple[int, int]], None] | None = None,
        every: float | None = None,
    ) -> None:
        self._directory = directory
        self._on_wait = on_wait
        self._check = check
        self._every = every

    def __enter__(self) -> None:
        directory = self._directory
        place = self._place = directory.lock_place or _place_of(directory)
        if place.thread == _thread.get_ident():
            raise AgentrunError(f"{directory.path}: this thread holds the session's lock already")
        self._has_waited = False
        place.lock.acquire()
        try:
            place.thread = _thread.get_ident()
            if place.fd < 0:
                place.fd = os.open(".", _DIRECTORY, dir_fd=directory.fd)
            if not _lock_now(place.fd):
                self._wait()
            if self._check:
                self._check(place.key)
        except OSError as error:
            self._let_go()
            raise translated(error, directory.path) from error
        except BaseException:
            self._let_go()
            raise

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def _wait(self) -> None:
        from agentrun.store.lock_queue import wait_for_lock  # here: hardly anybody has to wait

        self._has_waited = True
        place = self._place
        # Whoever gives up waiting leaves the descriptor to the one that waits for the kernel.
        fd, place.fd = place.fd, -1
        wait_for_lock(fd, LOCK_PATIENCE if self._every is None else self._every, self._on_wait)
        place.fd = fd

    def _let_go(self) -> None:
        place = self._place
        try:
            # A forked child has no descriptor of its parent's locks, see `_forget_parent`.
            if place.fd >= 0:
                try:
                    fcntl.flock(place.fd, fcntl.LOCK_UN)
                except OSError:
                    # What a file system does not unlock (ENOLCK of NFS) it lets go with the last descriptor.
                    fd, place.fd = place.fd, -1
                    os.close(fd)
                if self._has_waited:
                    # There may be a crowd: who is next must be awake before this process comes back for more.
                    os.sched_yield()
        finally:
            place.thread = None
            place.lock.release()


def _place_of(directory: Directory) -> _Place:
    """The place that all handles of this directory share; it is kept by them, and ends with the last one."""
    with speaking_of(directory.path):
        found = os.fstat(directory.fd)
    key = (found.st_dev, found.st_ino)
    with _guard:
        known = _places.get(key)
        place = known() if known is not None else None
        if place is None:
            place = _Place(key)
            _places[key] = ref(place, lambda gone: _forget(key, gone))
    directory.lock_place = place
    return place


def _forget(key: tuple[int, int], gone: ReferenceType[_Place]) -> None:
    with _guard:
        if _places.get(key) is gone:
            del _places[key]


def _forget_parent() -> None:
    """In a forked child: the parent's locks are the parent's, and end with it alone.

    A descriptor that both have would be the same lock, held for as long as either has it open.
    """
    global _guard
    _guard = _thread.RLock()
    for known in list(_places.values()):
        place = known()
        if place is None:
            continue
        fd, place.fd = place.fd, -1
        if fd >= 0:
            os.close(fd)
        if place.thread != _thread.get_ident():
            # The threads that it had are the parent's.
            place.lock, place.thread = _thread.allocate_lock(), None


os.register_at_fork(after_in_child=_forget_parent)


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
        place = f"{_file_system(directory.fd)}:{inode}"
        with open(_LOCKS, encoding="ascii") as file:
            lines = [line.split() for line in file]
    except (OSError, ValueError):
        return None
    # `1: FLOCK ADVISORY WRITE 4121 08:02:131 0 EOF`; one that waits has `->` behind its number.
    for fields in lines:
        if fields[1:4:2] == ["FLOCK", "WRITE"] and fields[5] == place:
            return int(fields[4])
    return None


def _file_system(fd: int) -> str:
    """The device of the file system of an open file as proc_locks(5) has it: fstat(2) tells another one on btrfs.

    Raises OSError or ValueError where there is no /proc, or none that tells (proc_pid_fdinfo(5)).
    """
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        (mount,) = (line.split()[1] for line in file if line.startswith("mnt_id:"))
    with open("/proc/self/mountinfo", "rb") as mounts:
        (device,) = (line.split()[2] for line in mounts if line.split()[0].decode() == mount)
    major, minor = map(int, device.split(b":"))
    return f"{major:02x}:{minor:02x}"


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


class directory_lock:
    """Holds the lock of a directory that many sessions share, for an instant; False if it cannot be had in time.

    Its holder may be frozen, and must not freeze everybody else.
    """

    __slots__ = ("_directory", "_fd")

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __enter__(self) -> bool:
        self._fd = _open_again(self._directory)
        patience = time.monotonic() + SHARED_PATIENCE
        try:
            with speaking_of(self._directory.path):
                while not (is_locked := _lock_now(self._fd)) and time.monotonic() < patience:
                    time.sleep(_RETRY)
        except BaseException:
            os.close(self._fd)
            raise
        return is_locked

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


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
