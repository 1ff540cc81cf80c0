"""Files that a configuration is made of: they are read again by every executor, so they are files and nothing else."""

from __future__ import annotations

import errno
import os
import stat

# More than anybody writes, and little enough for any machine.
MOST_BYTES = 64 * 1024 * 1024


def file_bytes(path: str) -> bytes:
    """The content of the regular file `path`.

    Raises OSError, also for a pipe, which would be waited for, a device, which may never end, and a file of more than
    `MOST_BYTES`.
    """
    # O_NONBLOCK: opening a FIFO waits for somebody who writes; it changes nothing for regular files.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB")
    return content
