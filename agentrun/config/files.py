"""Files that a configuration is made of: they are read again by every executor, so they are files and nothing else.

They name commands that are executed as whoever reads them, so what somebody else could have put there is not read.
"""

from __future__ import annotations

import errno
import os
import stat

from agentrun.config.trusted import check_trusted
from agentrun.pieces import read_to

# More than anybody writes, and little enough for any machine.
MOST_BYTES = 64 * 1024 * 1024


def file_bytes(path: str) -> bytes:
    """The content of the regular file `path`.

    Raises OSError, also for a pipe, which would be waited for, a device, which may never end, a file of more than
    `MOST_BYTES`, and one that another user may have written or put there.
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
        check_trusted(path, found)
        content = read_to(MOST_BYTES, lambda size: os.read(fd, size))
    finally:
        os.close(fd)
    if content is None:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB")
    return content
