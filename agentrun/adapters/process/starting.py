"""Starts a program with pipes to and from it, and a descriptor for lines."""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
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
        # `pass_fds` wants the number to be in use on our side as well. This takes the lowest free one
        # from there on, so afterwards it is.
        ends.append(fcntl(ends[1], F_DUPFD_CLOEXEC, LINE_FD))
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
            # One call into C between fork and exec. Nothing else lets us choose the number.
            preexec_fn=partial(os.dup2, ends[2], LINE_FD),
        )
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        _close_all(ends)
        raise CannotStart(argv[0] if argv else "", _reason(error)) from error
    own_children.add(process.pid)
    _close_all(ends[1:])
    return Started(process, open(ends[0], "rb", buffering=0))


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else error.strerror
