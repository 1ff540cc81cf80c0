"""Waiting for something to change in a directory: kernel events where there are any, looking again where not.

Events are hints. Their number per user is limited, network file systems send none and queues overflow, so whoever
waits looks again at least once a second, whatever the kernel says (inotify(7)).
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import os
import select
import sys

from agentrun.store.disk import Directory

# How long to wait for an event before looking all the same; without events, how often to look.
SAFETY_LOOK = 1.0
POLL = 0.1

# Bytes read at once, and the longest that one event can be (inotify(7)): where room for another one is left, there is
# none.
_READ, _EVENT = 1 << 12, 272
_IN_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_MODIFY, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x80, 0x100, 0x200


class Watch:
    """Watches the names and contents of `directories`, not what lies below them.

    `fd` becomes readable when something changed, and is None where the kernel cannot say.
    """

    def __init__(self, *directories: Directory) -> None:
        self.fd = _inotify(directories)

    @property
    def patience(self) -> float:
        """Seconds after which to look even if nothing was reported."""
        return POLL if self.fd is None else SAFETY_LOOK

    def wait(self, seconds: float | None = None, *, also: int | None = None) -> bool:
        """Blocks until something may have changed, at most `seconds` or `patience`; whether an event came.

        A descriptor `also` that becomes readable ends it as well; it is the caller's to read.
        """
        limit = self.patience if seconds is None else min(seconds, self.patience)
        readable, _, _ = select.select([fd for fd in (self.fd, also) if fd is not None], [], [], limit)
        self.clear()
        return bool(readable)

    def clear(self) -> None:
        """Takes the pending events away, so that `fd` waits for new ones."""
        if self.fd is None:
            return
        try:
            while len(os.read(self.fd, _READ)) > _READ - _EVENT:
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Stops watching; the descriptor is let go of behind the caller's back, since that takes the kernel a while."""
        if self.fd is not None:
            fd, self.fd = self.fd, None
            try:
                # Five milliseconds and more, as often as not all that is left to do.
                _thread.start_new_thread(os.close, (fd,))
            except RuntimeError:  # there are too many threads, or the interpreter ends
                os.close(fd)


def _inotify(directories: tuple[Directory, ...]) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(_IN_CLOEXEC_NONBLOCK)
    if fd < 0:
        return None
    for directory in directories:
        # By descriptor, so that the directory that is watched is the one that was opened.
        path = f"/proc/self/fd/{directory.fd}".encode("ascii")
        if libc.inotify_add_watch(fd, path, _MODIFY | _MOVED_TO | _CREATE | _DELETE) < 0:
            os.close(fd)
            return None
    return fd
