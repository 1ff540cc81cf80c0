"""Prints the lines that come to a file, found out in another way than agentrun does: `watchfiles|polling FILE`."""

import os
import sys
import time

how, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
os.lseek(fd, 0, os.SEEK_END)


def news() -> None:
    while data := os.read(fd, 1 << 16):
        os.write(1, data)


if how == "watchfiles":
    from watchfiles import watch

    # Its first event tells that it watches.
    for _ in watch(os.path.dirname(path), yield_on_timeout=True, rust_timeout=500):
        news()
while how == "polling":
    news()
    time.sleep(0.1)
