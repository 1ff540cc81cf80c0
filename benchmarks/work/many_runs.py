"""One of many processes, forked from here, that each append to a run or file of their own at once: `KIND PLACE COUNT`.

`write` begins them all at one moment and returns how many records they wrote in that many seconds.
"""

import os
import sys
import time

from serving import serve

kind, place, count = sys.argv[1], sys.argv[2], int(sys.argv[3])


def raw(number: int):
    from events import a_line

    fd = os.open(f"{place}/raw-{number}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = a_line(number)

    def append(_: int) -> None:
        os.write(fd, line)
        os.fdatasync(fd)

    return append


def agentrun(number: int):
    from events import Going

    return Going(f"{place}/root", 0).append


def one(number: int, begin: float, seconds: float, out: int) -> None:
    append, written = makers[number], 0
    time.sleep(max(begin - time.time(), 0))
    while time.time() < begin + seconds:
        append(written)
        written += 1
    os.write(out, b"%d\n" % written)
    os._exit(0)


def write(seconds: float) -> int:
    begin = time.time() + 0.2
    ours, theirs = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if not pid:
            one(number, begin, seconds, theirs)
        children.append(pid)
    os.close(theirs)
    with os.fdopen(ours) as lines:
        written = [int(line) for line in lines]
    for pid in children:
        os.waitpid(pid, 0)
    assert len(written) == count
    return sum(written)


makers = [{"raw": raw, "agentrun": agentrun}[kind](number) for number in range(count)]
serve(write=write)
