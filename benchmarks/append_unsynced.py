"""An event that is not waited for on its way to the disk: the next one that is synced takes it along.

agentrun takes the session's lock, checks lease, status and sentinel, and appends the line; that is all but the sync of
the durable append. sqlite reads the last number and inserts the next, in one transaction.

The six system calls of an append (the lock and back, is the session still there, how long is the log, is there a cancel
file, write) take about 6 us, which is what 2.5 times sqlite leaves for everything. Folding the event into the run takes
2 us, its line and time 2, and the rest is calls between functions of Python.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from append import HISTORIES
from frame import Reach, Size, in_turns, ratio, reach_table, run, times_table
from workers import Worker

SQLITE = "sqlite3, WAL, synchronous=NORMAL"


def measure(size: Size) -> str:
    each, rounds = size.of(200, 2), size.of(25, 1)
    histories = {f"agentrun, {history:,} events before": size.of(history, min(history, 100)) for history in HISTORIES}
    with ExitStack() as stack:
        plain = stack.enter_context(Worker("append_plain", size.folder))
        ways = {"raw write": partial(plain.call, "raw_unsynced", each)}
        for name, history in histories.items():
            worker = stack.enter_context(Worker("append_agentrun", size.folder / "root", history))
            ways[name] = partial(worker.call, "append_unsynced", each)
        ways[SQLITE] = partial(plain.call, "normal", each)
        taken = in_turns(ways, rounds)
    first, *_, last = histories
    reaches = [
        Reach("appends in the time of one in sqlite3", 1 / ratio(taken, first, SQLITE), 2.5, or_more=True),
        Reach("1,000,000 events before, x none before", ratio(taken, last, first), 1.1),
    ]
    return f"{times_table(taken, SQLITE)}\n\n{reach_table(reaches)}"


if __name__ == "__main__":
    run("Append without a sync", measure, __doc__)
