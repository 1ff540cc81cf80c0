"""What stands where a directory is wanted: the system says of a path that it does not lead there, and not why."""

from __future__ import annotations

import errno
import os


def no_directory(path: str) -> str | None:
    """The first part of `path`, itself included, that is there and is no directory; None if there is none."""
    parts = path.rstrip(os.sep).split(os.sep)
    for count in range(1, len(parts) + 1):
        part = os.sep.join(parts[:count])
        if part and os.path.lexists(part) and not os.path.isdir(part):
            return part
    return None


def in_words(error: OSError, path: str) -> str:
    """What the system says about `path`."""
    in_the_way = no_directory(path) if error.errno == errno.ENOTDIR else None
    return f"{in_the_way} is no directory" if in_the_way else os.strerror(error.errno or 0)
