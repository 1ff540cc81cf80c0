"""An event that lasts through a power cut, appended to a run with and without a long history.

agentrun takes the session's lock, checks lease, status and sentinel, appends the line and syncs it. Raw is a write(2)
of the same line and fdatasync(2); the overwrite is the same inside a file that has its length already, which is what
sqlite does in its log most of the time: it spares the file system the new length. A log of lines that others read while
it grows cannot have that. The peers begin with nothing behind them.

What agentrun takes over raw is the processor: seven system calls with raw's two among them, and the interpreter. In a
loop without a sync all of it takes about 12 us, of which the system calls are 6. After the sleep of a sync it runs on
cold caches: with 6 MB read between two appends the same steps take four times as long, every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import peers
from frame import Reach, Size, in_turns, ratio, reach_table, run, times_table
from workers import Worker

HISTORIES = (0, 10_000, 1_000_000)
RAW = "raw write + fdatasync"
INSIDE = "raw overwrite + fdatasync"
OTHERS = {
    "openai-agents SQLiteSession.add_items": (peers.OPENAI_AGENTS, "append_openai_agents", "append"),
    "langgraph SqliteSaver.put": (peers.LANGGRAPH, "append_langgraph", "put"),
    "langgraph SqliteSaver.put_writes": (peers.LANGGRAPH, "append_langgraph", "put_writes"),
    "dbos step": (peers.DBOS, "append_dbos", "append"),
    "llm log_to_db": (peers.LLM, "append_llm", "append"),
}


def measure(size: Size) -> str:
    each, rounds = size.of(40, 2), size.of(25, 1)
    histories = {f"agentrun, {history:,} events before": size.of(history, min(history, 100)) for history in HISTORIES}
    with ExitStack() as stack:
        ways: dict[str, Callable[[], list[float]]] = {}
        plain = stack.enter_context(Worker("append_plain", size.folder))
        ways[RAW] = partial(plain.call, "raw", each)
        ways[INSIDE] = partial(plain.call, "inside", each)
        for name, history in histories.items():
            worker = stack.enter_context(Worker("append_agentrun", size.folder / "root", history))
            ways[name] = partial(worker.call, "append", each)
        ways["sqlite3, WAL, synchronous=FULL"] = partial(plain.call, "full", each)
        for name, (peer, script, action) in OTHERS.items():
            python = peers.python(peer, size)
            if python:
                folder = size.folder / name.replace(" ", "-")
                folder.mkdir()
                worker = stack.enter_context(Worker(script, folder, python=python))
                ways[name] = partial(worker.call, action, each)
        taken = in_turns(ways, rounds)
    ours = list(histories)
    slowest = max(ours, key=lambda name: ratio(taken, name, RAW))
    rivals = [name for name in taken if name not in (*ours, RAW, INSIDE)]
    reaches = [Reach(f"{name}, x raw", ratio(taken, name, RAW), 1.2) for name in ours]
    reaches.append(Reach("1,000,000 events before, x none before", ratio(taken, ours[2], ours[0]), 1.1))
    reaches += [Reach(f"x {name}", ratio(taken, slowest, name), 1.0) for name in rivals]
    return "\n\n".join(part for part in (times_table(taken, RAW), reach_table(reaches), peers.missing_text()) if part)


if __name__ == "__main__":
    run("Durable append of an event", measure, __doc__)
