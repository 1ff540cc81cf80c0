"""How long a document and a line may be: each is read into memory whole, by everybody who lists sessions.

What is longer was written by nobody here. It is damage, told with its place, and keeps nobody from other sessions.
"""

from __future__ import annotations

import os

from agentrun.errors import CorruptRecord

# Bytes. Texts that a user, a model or a tool puts into a record are bounded far below, and so is what is kept in files.
LONGEST = 256 << 20
_PIECE = 1 << 20


def read_on(fd: int, length: int, data: bytes, path: str) -> bytes:
    """What the file holds, of which `data` was read; it had `length` bytes just now.

    Raises CorruptRecord if it has more than `LONGEST`.
    """
    check_length(length, path)
    chunks, length = [data], len(data)
    while chunk := os.read(fd, _PIECE):
        length += len(chunk)
        check_length(length, path)
        chunks.append(chunk)
    return b"".join(chunks)


def check_length(length: int, path: str, offset: int = 0) -> None:
    """Raises CorruptRecord if what begins at `offset` of `path` has more than `LONGEST` bytes."""
    if length > LONGEST:
        raise CorruptRecord(
            f"{path}: at byte {offset} begins something of more than {LONGEST >> 20} MiB, which is no record",
            path=path,
            offset=offset,
        )


def check_line(fd: int, length: int, offset: int) -> None:
    """As `check_length`, where only the descriptor of the file is known."""
    if length > LONGEST:
        check_length(length, _path_of(fd), offset)


def _path_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # there is no /proc
        return "a log"
