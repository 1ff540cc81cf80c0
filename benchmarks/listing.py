"""The list of sessions: the 20 that changed last, of 10,000 and of 100,000, and all 10,000 with their last run.

In process, as `ls` does it: each session's document, its last run and its last message are read. `find` walks the same
directories and reads nothing; sqlite has a table of sessions with an index, and one of runs.

What bounds the list of all is that the files are the record and there is no index: a row opens three directories and
up to five files, sees whose they are, and decodes eight JSON texts, 0.17 ms of the processor's time. `find` takes
0.08 ms a session for the names alone, and a quarter of that is less than the opening of the files takes.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from functools import partial

import fixtures
from frame import Reach, Size, in_turns, ratio, reach_table, run, timed, times_table
from workers import Worker


def measure(size: Size) -> str:
    few_root, few = fixtures.many_sessions(size, 10_000)
    many_root, many = fixtures.many_sessions(size, 100_000)
    sessions = fixtures.account_directory(few_root) / "sessions"
    with ExitStack() as stack:
        few_ours = stack.enter_context(Worker("list_agentrun", few_root, fixtures.ACCOUNT))
        many_ours = stack.enter_context(Worker("list_agentrun", many_root, fixtures.ACCOUNT))
        few_sqlite = stack.enter_context(Worker("list_sqlite", size.folder, few))
        many_sqlite = stack.enter_context(Worker("list_sqlite", size.folder, many))
        newest = in_turns(
            {
                "agentrun, 10,000": partial(few_ours.call, "newest", 10),
                "agentrun, 100,000": partial(many_ours.call, "newest", 10),
                "sqlite3, 10,000": partial(few_sqlite.call, "newest", 10),
                "sqlite3, 100,000": partial(many_sqlite.call, "newest", 10),
            },
            size.of(20, 1),
        )
        everything = in_turns(
            {
                "agentrun": partial(few_ours.call, "everything", 1),
                "find": timed(lambda: subprocess.run(["find", sessions], check=True, stdout=subprocess.DEVNULL)),
                "sqlite3": partial(few_sqlite.call, "everything", 1),
            },
            size.of(5, 1),
        )
    reaches = [
        Reach("20 newest of 100,000, x of 10,000", ratio(newest, "agentrun, 100,000", "agentrun, 10,000"), 1.1),
        Reach("all 10,000 with their last run, x find", ratio(everything, "agentrun", "find"), 0.25),
    ]
    texts = [f"The 20 newest:\n\n{times_table(newest, 'agentrun, 10,000')}"]
    texts.append(f"All {few:,} with their last run:\n\n{times_table(everything, 'find')}")
    return "\n\n".join([*texts, reach_table(reaches)])


if __name__ == "__main__":
    run("List of sessions", measure, __doc__)
