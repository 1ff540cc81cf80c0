"""System calls of a command, seen and answered by the test before they happen: each goes on, fails, or is its last.

The kernel asks (seccomp_unotify(2)): a process lets itself be watched and hands its listener over; from then on each of
its calls that change files waits until the watcher has answered. All other calls cost nothing, which a tracer that
stops the process at every call does not manage. What the process starts is seen as well; the watcher lets it go on.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# What the kernel has to say of each machine: seccomp(2) and the calls by their numbers, AUDIT_ARCH_* of linux/audit.h.
_MACHINES = {
    "x86_64": (0xC000003E, 317, {
        "openat": 257, "write": 1, "pwrite64": 18, "writev": 20, "fsync": 74, "fdatasync": 75, "rename": 82,
        "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "mkdir": 83, "mkdirat": 258, "unlink": 87,
        "unlinkat": 263, "rmdir": 84, "ftruncate": 77, "flock": 73,
    }),
    "aarch64": (0xC00000B7, 277, {
        "openat": 56, "write": 64, "pwrite64": 68, "writev": 66, "fsync": 82, "fdatasync": 83, "renameat": 38,
        "renameat2": 276, "linkat": 37, "mkdirat": 34, "unlinkat": 35, "ftruncate": 46, "flock": 32,
    }),
}  # fmt: skip
# What the arguments are: a descriptor, a path, or a descriptor of a directory and a path from there.
_SHAPES = {
    "openat": ("at",), "write": ("fd",), "pwrite64": ("fd",), "writev": ("fd",), "fsync": ("fd",), "fdatasync": ("fd",),
    "rename": ("path", "path"), "renameat": ("at", "at"), "renameat2": ("at", "at"), "link": ("path", "path"),
    "linkat": ("at", "at"), "mkdir": ("path",), "mkdirat": ("at",), "unlink": ("path",), "unlinkat": ("at",),
    "rmdir": ("path",), "ftruncate": ("fd",), "flock": ("fd",),
}  # fmt: skip
_REMOVING = {"unlink", "unlinkat", "rmdir"}

# Of linux/bpf_common.h and linux/seccomp.h.
_LOAD, _RETURN, _EQUAL, _GREATER, _HAS_BIT = 0x20, 0x06, 0x15, 0x25, 0x45
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_NO_NEW_PRIVILEGES = 38
_AT_FDCWD = -100

# Of these calls only those that change something: argument, how it is compared, with what. A file is made; something
# else than a standard stream is written; it is locked against others.
_ONLY = {
    "openat": (2, _HAS_BIT, os.O_CREAT), "write": (0, _GREATER, 2), "flock": (1, _HAS_BIT, fcntl.LOCK_EX),
}  # fmt: skip
_LOCKS = ("LOCK_SH", "LOCK_EX", "LOCK_NB", "LOCK_UN")
_PAGE = 4096
_PATH_MAX = 4096
# How much of what is written is kept to tell one call from another, in bytes.
_TELLING = 120


class Seen(NamedTuple):
    """The `number`-th call of `name` that changes something under the root, as text."""

    name: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.name} #{self.number}"


@functools.cache
def why_not() -> str | None:
    """Why nobody can be watched here; None if it works."""
    if platform.machine() not in _MACHINES:
        return f"nobody has written down the numbers of the system calls of {platform.machine()}"
    tried = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    said = tried.stderr.strip().rpartition("\n")[2]
    return f"system calls cannot be watched here (it needs Linux 5.19): {said}" if tried.returncode else None


# --- who is watched


def be_watched(way: socket.socket) -> None:
    """Lets whoever is at the other end of `way` answer the calls of this thread and of all that it begins."""
    listener = _listen_to_me()
    socket.send_fds(way, [b"."], [listener])
    os.close(listener)


def _listen_to_me() -> int:
    program = _filter()
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    number = _MACHINES[platform.machine()][1]
    listener: int = libc.syscall(number, _SET_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, described)
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener


def _filter() -> bytes:
    """The program by which the kernel tells the calls that it asks about."""
    arch, _, numbers = _MACHINES[platform.machine()]
    steps = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _NUMBER)]
    for name, number in numbers.items():
        if name in _ONLY:
            place, compare, with_what = _ONLY[name]
            steps += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENTS + 8 * place), (compare, 0, 1, with_what)]
            steps += [(_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _ALLOW)]
        else:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ASK)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


# --- who watches


class Watch:
    """Answers the calls of one process. `theirs` is for the process, which lets itself be watched.

    At the `number`-th call of `name` that its first thread makes and that changes something under `root` comes `fault`:
    `signal=KILL` (it is not carried out), `signal=STOP` (the process stands still behind it), `error=NAME`.
    """

    def __init__(self, root: Path, at: tuple[str, int] | None = None, fault: str = "", *, tells: bool = False) -> None:
        self._root = str(root)
        self._at = at
        self._kind, _, self._what = fault.partition("=")
        self._tells = tells
        self._names = {number: name for name, number in _MACHINES[platform.machine()][2].items()}
        self._counted: Counter[str] = Counter()
        self._mine, self.theirs = socket.socketpair()
        # The calls that were seen, if they are to be told.
        self.seen: list[Seen] = []
        # The process; set by `begin`.
        self.pid = 0
        # Set once the fault has come.
        self.has_come = threading.Event()
        # The call at which it came, if calls are to be told.
        self.met: Seen | None = None

    def begin(self, pid: int) -> None:
        """Begins to answer the calls of the process; it goes on until nobody is left who makes any."""
        self.theirs.close()
        with self._mine:
            _, fds, _, _ = socket.recv_fds(self._mine, 1, 1)
        assert fds, "it ended before it could be watched"
        self.pid, self._listener = pid, fds[0]
        threading.Thread(target=self._answer_all, daemon=True).start()

    def _answer_all(self) -> None:
        calls = select.poll()
        calls.register(self._listener, select.POLLIN)
        try:
            while calls.poll()[0][1] & select.POLLIN:
                self._answer()
        finally:
            os.close(self._listener)

    def _answer(self) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notice)
        except (FileNotFoundError, InterruptedError):
            return  # whoever made the call is dead; or it is asked about once more
        key, pid, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        refused: int | None = 0
        try:
            if pid == self.pid:
                refused = self._judge(self._names[number], arguments)
        finally:
            # Whatever it was, it would wait for ever. But one that is told to go on does so though it is being killed.
            with suppress(FileNotFoundError):  # it is dead by now
                if refused is not None:
                    fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(key, 0, -refused, 0 if refused else _GO_ON))

    def _judge(self, name: str, arguments: list[int]) -> int | None:
        """Counts the call if it changes the tree; the error that it gets, 0 for none, None where it gets no answer."""
        places = self._places(name, arguments)
        if not any(f"{place.path}/".startswith(f"{self._root}/") for place in places):
            return 0
        if name in _REMOVING and not os.path.lexists(places[0].path):
            return 0
        self._counted[name] += 1
        if self._tells:
            self.seen.append(Seen(name, self._counted[name], self._text(name, arguments, places)))
        if (name, self._counted[name]) != self._at:
            return 0
        self.met = self.seen[-1] if self._tells else None
        self.has_come.set()
        if self._kind == "error":
            return int(getattr(errno, self._what))
        # A stop is noticed by the process once the call is over.
        with suppress(ProcessLookupError):  # somebody else was quicker
            os.kill(self.pid, getattr(signal, f"SIG{self._what}"))
        return None if self._what == "KILL" else 0

    def _places(self, name: str, arguments: list[int]) -> list[_Place]:
        found, left = [], list(arguments)
        for part in _SHAPES[name]:
            directory = self._opened(_AT_FDCWD if part == "path" else left.pop(0))
            said, path = [] if part == "path" else [f"<{directory}>"], directory
            if part != "fd":
                named = self._memory(left.pop(0), _PATH_MAX, b"\0").decode(errors="replace")
                said.append(f'"{named}"')
                path = os.path.join(directory, named)
            found.append(_Place(", ".join(said), path))
        return found

    def _opened(self, number: int) -> str:
        """The path of one of its descriptors."""
        fd = ctypes.c_int(number & 0xFFFFFFFF).value
        try:
            return os.readlink(f"/proc/{self.pid}/" + ("cwd" if fd == _AT_FDCWD else f"fd/{fd}"))
        except OSError:
            return ""  # there is none, as the kernel is about to tell it

    def _memory(self, place: int, size: int, end: bytes | None = None) -> bytes:
        """What the process has in its memory there, up to `end`."""
        found = b""
        with suppress(OSError), open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            # By pages: the next one may be missing.
            while len(found) < size and not (end and end in found):
                begin = place + len(found)
                more = os.pread(memory.fileno(), min(size - len(found), _PAGE - begin % _PAGE), begin)
                if not more:
                    break
                found += more
        return found.partition(end)[0] if end else found

    def _text(self, name: str, arguments: list[int], places: list[_Place]) -> str:
        words = [place.said for place in places]
        if name in ("write", "pwrite64"):
            words.append(repr(self._memory(arguments[1], min(arguments[2], _TELLING)))[1:])
        elif name == "flock":
            words.append("|".join(each for each in _LOCKS if arguments[1] & getattr(fcntl, each)))
        return f"{name}({', '.join(words)})"


class _Place(NamedTuple):
    """A part of the arguments: how it is written, and the path that it means."""

    said: str
    path: str


if __name__ == "__main__":
    _listen_to_me()
