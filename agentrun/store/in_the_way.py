"""What the system refuses, in words: where it only says of a path that it does not lead there, also why."""

from __future__ import annotations

import errno
import os
import stat

from agentrun.errors import AgentrunError, Denied, NotFound, StorageFailed, TooManyOpen

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})


def refusal(error: OSError, path: str) -> AgentrunError:
    """The deliberate error for what the system said about `path`."""
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    words = _in_words(error, path)
    said = f"{words} ({name})" if words.startswith(path) else f"{path}: {words} ({name})"
    if error.errno in _DENIED:
        return Denied(said)
    if error.errno == errno.ENOENT:
        return NotFound(said)
    doubt = "nothing was acknowledged, though it may be stored"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpen(said, hint=f"{doubt}; let it open more files: ulimit -n")
    return StorageFailed(said, hint=f"{doubt}; make room or choose another place with --root")


def foreign(path: str) -> Denied:
    """The error for a directory at `path`, where one's own should be, that belongs to somebody else."""
    import shlex

    way = f"chown -hR {os.geteuid()} {shlex.quote(path)}"
    return Denied(f"{path} belongs to another user", hint=f"if what lies in it is yours, have it given to you: {way}")


def way_out(folder: str, found: os.stat_result) -> str | None:
    """What helps where a file in `folder` may not be used because of its other names; None where it is something else.

    A copy of a tree that was made with hard links (`cp -l`) is none: what is appended to a file is appended in both.
    """
    if found.st_nlink < 2 or found.st_uid != os.geteuid() or stat.S_ISDIR(found.st_mode):
        return None
    import shlex

    each = 'cp -p "$1" "$1.own" && mv "$1.own" "$1"'
    command = f"find {shlex.quote(folder)} -type f -links +1 -exec sh -c '{each}' - {{}} \\;"
    return f"if you copied it with hard links, have each file bytes of its own again:\n{command}"


def no_directory(path: str) -> str | None:
    """The first part of `path`, itself included, that is there and is no directory; None if there is none."""
    parts = path.rstrip(os.sep).split(os.sep)
    for count in range(1, len(parts) + 1):
        part = os.sep.join(parts[:count])
        if part and os.path.lexists(part) and not os.path.isdir(part):
            return part
    return None


def _in_words(error: OSError, path: str) -> str:
    """What the system says about `path`."""
    in_the_way = no_directory(path) if error.errno == errno.ENOTDIR else None
    if in_the_way is None and error.errno == errno.ENOTDIR and os.path.islink(path):
        return f"{path} is a link, which is not followed"
    return f"{in_the_way} is no directory" if in_the_way else os.strerror(error.errno or 0)
