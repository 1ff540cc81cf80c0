"""Starts a program with pipes to and from it, and a descriptor for lines."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from functools import partial
from typing import BinaryIO, NamedTuple

from agentrun.adapters.process.orphans import own_children

LINE_FD = 3
"""The tool's descriptor for lines that are passed on at once."""


class CannotStart(Exception):
    """The program could not be started; nothing of it has run."""

    def __init__(self, argv0: str, reason: str) -> None:
        super().__init__(f"cannot start {argv0!r}: {reason}")
        self.argv0 = argv0
        self.reason = reason


class Started(NamedTuple):
    """A process, and our end of its descriptor for lines."""

    process: subprocess.Popen[bytes]
    lines: BinaryIO


def start(argv: Sequence[str], cwd: str | os.PathLike[str], env: Mapping[str, str]) -> Started:
    """Starts a program in a session of its own, its streams being pipes of ours. Raises `CannotStart`."""
    ends: list[int] = []
    try:
        ends += os.pipe()
        with _as_line_fd(ends[1]) as in_between:
            process = subprocess.Popen(
                list(argv),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=(LINE_FD,),
                preexec_fn=in_between,
            )
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        _close_all(ends)
        raise CannotStart(argv[0] if argv else "", _reason(error)) from error
    own_children.add(process.pid)
    _close_all(ends[1:])
    return Started(process, open(ends[0], "rb", buffering=0))


@contextmanager
def _as_line_fd(end: int) -> Iterator[Callable[[], object] | None]:
    """Has a program that is started inside get `end` as `LINE_FD`; what has to be called between fork and exec for it.

    Nothing has to where the number is ours to use. Where it is not, nothing else lets us choose it, and the whole of
    this process is copied to make that one call.
    """
    if _is_line_fd_reserved():
        null = fcntl(LINE_FD, F_DUPFD_CLOEXEC, LINE_FD)
        os.dup2(end, LINE_FD, inheritable=False)
        try:
            yield None
        finally:
            os.dup2(null, LINE_FD, inheritable=False)
            os.close(null)
        return
    # `pass_fds` wants the number to be in use on our side as well. This takes the lowest free one from there on, so
    # afterwards it is.
    spare = fcntl(end, F_DUPFD_CLOEXEC, LINE_FD)
    try:
        yield partial(os.dup2, spare, LINE_FD)
    finally:
        os.close(spare)


def _is_line_fd_reserved() -> bool:
    """Whether the null device was put there for this, as `agentrun` does when it begins, and is handed to nobody."""
    try:
        found, null = os.fstat(LINE_FD), os.stat(os.devnull)
        return (found.st_mode, found.st_rdev) == (null.st_mode, null.st_rdev) and not os.get_inheritable(LINE_FD)
    except OSError:
        return False


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else error.strerror
