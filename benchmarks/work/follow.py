"""Prints the lines that come to a file, found out in another way than agentrun does: `watchfiles|polling|synced FILE`.

`synced` does nothing but what nobody can leave out who tells only what lasts: it waits for the kernel to say that the
file was written, and syncs it.
"""

import ctypes
import os
import sys
import time

how, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
os.lseek(fd, 0, os.SEEK_END)


def news() -> None:
    while data := os.read(fd, 1 << 16):
        if how == "synced":
            os.fdatasync(fd)
        os.write(1, data)


if how == "watchfiles":
    from watchfiles import watch

    # Its first event tells that it watches.
    for _ in watch(os.path.dirname(path), yield_on_timeout=True, rust_timeout=500):
        news()
if how == "synced":
    libc = ctypes.CDLL(None)
    events = libc.inotify_init1(os.O_CLOEXEC)
    libc.inotify_add_watch(events, path.encode(), 0x2)
    while os.read(events, 1 << 16):
        news()
while how == "polling":
    news()
    time.sleep(0.1)
