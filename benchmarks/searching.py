"""A search that finds nothing: in one conversation of 300 MB, and in 10,000 sessions.

ripgrep searches the messages' files, ignoring capitals as agentrun does; sqlite scans the same lines with `like`. Of
the 10,000 sessions agentrun also opens each one and looks at its document and its active run.

What bounds it are three calls that go through all bytes: they are read (5 GB/s), made small letters (3.4 GB/s) and
searched (5.6 GB/s), 1.5 GB/s together.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import fixtures
import peers
from frame import Reach, Size, in_turns, median, reach_table, run, timed, times_table
from workers import Worker

# It begins with a letter that occurs in every line, as most words do.
TEXT = "refund of week seventeen"


def measure(size: Size) -> str:
    with ExitStack() as stack:
        root, _ = fixtures.long_session(size)
        log = fixtures.session_directory(root, "long") / "messages.jsonl"
        ours = stack.enter_context(Worker("search_agentrun", root, fixtures.ACCOUNT))
        sqlite = stack.enter_context(Worker("read_sqlite", log, size.folder))
        ways: dict[str, Callable[[], list[float]]] = {
            "agentrun": partial(ours.call, "search", TEXT, 1),
            "sqlite3 like": partial(sqlite.call, "search", TEXT, 1),
        }
        ripgrep = peers.system_program("rg")
        if ripgrep:
            ways["ripgrep"] = timed(partial(_ripgrep, ripgrep, log))
        one = in_turns(ways, size.of(5, 1))
        speed = log.stat().st_size / median(one["agentrun"]) / 1e9
        many_root, count = fixtures.many_sessions(size, 10_000)
        theirs = stack.enter_context(Worker("search_agentrun", many_root, fixtures.ACCOUNT))
        ways = {"agentrun": partial(theirs.call, "search", TEXT, 1)}
        if ripgrep:
            ways["ripgrep"] = timed(partial(_ripgrep, ripgrep, fixtures.account_directory(many_root) / "sessions"))
        many = in_turns(ways, size.of(5, 1))
        peaks = ours.call("peak_mb"), theirs.call("peak_mb")
    reaches = [
        Reach("GB a second in one conversation", speed, 1, or_more=True),
        Reach("MB of memory at the peak, one conversation", peaks[0], 60),
        Reach("MB of memory at the peak, 10,000 sessions", peaks[1], 60),
    ]
    texts = [f"In one conversation of {log.stat().st_size / 1e6:.0f} MB:\n\n{times_table(one, 'agentrun')}"]
    texts.append(f"In {count:,} sessions:\n\n{times_table(many, 'agentrun')}")
    return "\n\n".join(filter(None, [*texts, reach_table(reaches), peers.missing_text()]))


def _ripgrep(ripgrep: Path, place: Path) -> None:
    argv = [ripgrep, "--ignore-case", "--no-config", "--hidden", "--glob", "messages.jsonl", TEXT, place]
    found = subprocess.run(argv, capture_output=True, check=False)
    assert found.returncode == 1, found.stderr


if __name__ == "__main__":
    run("Search that finds nothing", measure, __doc__)
