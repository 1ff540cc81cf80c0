"""Reading a conversation of 1,000,000 messages in 300 MB: its end, a page in its middle, all of it.

All keep open what they read from; agentrun has no index. Every way makes objects of what it reads, but for `wc -l`,
which only shows how fast the bytes come. SQLiteSession keeps the texts alone, and cannot begin in the middle.

What bounds all of it is the interpreter: of the 1.5 us that a message takes, one regular expression needs 43 % to find
its fields, the making of the record 44 %, the look for control characters and the decoding 13 %. SQLiteSession makes a
dictionary of two fields, in 2.6 us: four times as fast would be what finding the fields takes alone. To see that each
line has the form, without taking anything out of it, takes 0.4 us; to parse a thousand lines as one JSON list, 1.3 us;
an expression that takes what neighbours share as one field saves 0.2 us where all is of one run and one process, and
loses more where it is not. A compiled parser (msgspec, orjson) would save a fifth, and be one more dependency.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import fixtures
import peers
from frame import Reach, Size, in_turns, median, ratio, reach_table, run, timed, times_table
from workers import Worker


def measure(size: Size) -> str:
    root, count = fixtures.long_session(size)
    log = fixtures.session_directory(root, "long") / "messages.jsonl"
    with ExitStack() as stack:
        workers = {
            "agentrun": Worker("read_agentrun", root, fixtures.ACCOUNT, "long", count),
            "sqlite3 by key": Worker("read_sqlite", log, size.folder),
        }
        python = peers.python(peers.OPENAI_AGENTS, size)
        if python:
            workers["SQLiteSession"] = Worker("read_openai_agents", log, size.folder, python=python)
        for worker in workers.values():
            stack.enter_context(worker)
        by_key = {name: worker for name, worker in workers.items() if name != "SQLiteSession"}
        last = in_turns({name: partial(each.call, "last", 50) for name, each in workers.items()}, size.of(10, 1))
        page = in_turns({name: partial(each.call, "page", 50) for name, each in by_key.items()}, size.of(10, 1))
        loading: dict[str, Callable[[], list[float]]] = {
            name: partial(each.call, "load", 1) for name, each in workers.items()
        }
        loading["wc -l"] = timed(lambda: subprocess.run(["wc", "-l", log], check=True, capture_output=True))
        load = in_turns(loading, size.of(3, 1), warm_up=0)
    reaches = [
        Reach("last 20, ms", median(last["agentrun"]) * 1e3, 0.2),
        Reach("page of 50 in the middle, ms", median(page["agentrun"]) * 1e3, 0.2),
    ]
    if "SQLiteSession" in load:
        faster = 1 / ratio(load, "agentrun", "SQLiteSession")
        reaches.append(Reach("all of it, times as fast as SQLiteSession", faster, 4, or_more=True))
    texts = [f"The last 20:\n\n{times_table(last, 'agentrun')}"]
    texts.append(f"A page of 50 in the middle:\n\n{times_table(page, 'agentrun')}")
    texts.append(f"All of it:\n\n{times_table(load, 'agentrun')}")
    return "\n\n".join(filter(None, [*texts, reach_table(reaches), peers.missing_text()]))


if __name__ == "__main__":
    run("Reading a long conversation", measure, __doc__)
