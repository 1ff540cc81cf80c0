"""Files that a configuration is made of: they are read again by every executor, so they are files and nothing else.

They name commands that are executed as whoever reads them, so what somebody else could have put there is not read.
"""

from __future__ import annotations

import errno
import os
import stat

# More than anybody writes, and little enough for any machine.
MOST_BYTES = 64 * 1024 * 1024
_CHUNK = 1 << 16

_ROOT = 0
# Whoever may write into the directory can put a file there: of a tree's, which several may share, a group as well.
_BY_ALL, _BY_OTHERS = 0o002, 0o022
_OF_A_TREE = "accounts"


def file_bytes(path: str) -> bytes:
    """The content of the regular file `path`.

    Raises OSError, also for a pipe, which would be waited for, a device, which may never end, a file of more than
    `MOST_BYTES`, and one that another user may have put where everybody can.
    """
    # O_NONBLOCK: opening a FIFO waits for somebody who writes; it changes nothing for regular files.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        mode = found.st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        _check_owner(found, path)
        return _content(fd)
    finally:
        os.close(fd)


def _check_owner(found: os.stat_result, path: str) -> None:
    """Raises OSError for a file or link of another user in a directory into which more than its owner may write."""
    folder = os.path.dirname(path) or os.curdir
    directory = os.stat(folder)
    writers = _BY_OTHERS if os.path.isdir(os.path.join(folder, _OF_A_TREE)) else _BY_ALL
    if not directory.st_mode & writers:
        return
    trusted = {_ROOT, os.geteuid(), directory.st_uid}
    for each in (os.lstat(path), found):
        if each.st_uid not in trusted:
            raise OSError(
                errno.EPERM,
                f"it belongs to another user (uid {each.st_uid}), who could have commands executed as you; "
                "copy it to a place of your own and name that with --config, or have it taken away",
            )


def _content(fd: int) -> bytes:
    # In pieces: to ask for all that it may have takes that much memory at once.
    pieces, length = [], 0
    while piece := os.read(fd, _CHUNK):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB")
    return b"".join(pieces)
