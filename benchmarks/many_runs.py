"""64 processes, each with a run of its own, that append durable events at once.

Raw is 64 processes that each write(2) to a file of their own and fdatasync(2): the file system makes several of them
last at once.

Both are bound by the processor, not by the disk. A raw record takes some 45 us of it, nearly all in the kernel. Of
agentrun's 200 us and more, by a profile, two fifths go into the interpreter: in a loop of one process that is less than
10 us, but each of 64 that take turns on the cores finds the caches full of the others. The sync takes a quarter,
switching a seventh, and pages that the forked processes still shared with their parent a tenth.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from frame import Reach, Size, reach_table, run, table
from workers import Worker

RUNS = 64


def measure(size: Size) -> str:
    count, seconds, rounds = size.of(RUNS, 4), size.of(15, 2) / 10, size.of(9, 1)
    rates: dict[str, list[float]] = {"raw": [], "agentrun": []}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker("many_runs", name, size.folder, count)) for name in rates}
        for number in range(rounds + 1):
            for name, worker in workers.items():
                written = worker.call("write", seconds)
                if number:
                    rates[name].append(written / seconds)
    shares = [ours / raw for ours, raw in zip(rates["agentrun"], rates["raw"], strict=True)]
    rows = [(name, f"{statistics.median(each):,.0f}", f"{min(each):,.0f}") for name, each in rates.items()]
    reaches = [Reach("agentrun's share of raw", statistics.median(shares), 0.6, or_more=True)]
    return f"{table(('', 'records a second', 'in the worst round'), rows)}\n\n{reach_table(reaches)}"


if __name__ == "__main__":
    run("64 runs at once", measure, __doc__)
