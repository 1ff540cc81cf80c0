"""A search that finds nothing: in one conversation of 300 MB, and in 10,000 sessions.

ripgrep searches the messages' files, ignoring capitals as agentrun does; sqlite scans the same lines with `like`. Of
the 10,000 sessions agentrun also opens each one and looks at its document and its active run. `agentrun` is a search
within a process that is there, `agentrun search` the whole command, and ripgrep is one too.

What bounds it are three calls that go through all bytes: they are read (5.7 GB/s), made small letters (3.5 GB/s) and
searched (5.8 GB/s), 1.55 GB/s together; what lies between those takes a tenth of the whole. Each of them goes byte by
byte where ripgrep compares 32 at once. The bytes come in pieces of 64 KB: in pieces of 256 KB the memory of each was
taken from the kernel and given back, and zeroing it took a third of the search. A text without letters of ASCII
(digits, Chinese) needs no small letters, and one with a character that is not in ASCII no search of pieces that have
none.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import fixtures
import peers
from frame import Reach, Size, environment, in_turns, median, ratio, reach_table, run, timed, times_table
from workers import Worker

# It begins with a letter that occurs in every line, as most words do.
TEXT = "refund of week seventeen"
WHOLE = "agentrun search"


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
        ways[WHOLE] = timed(partial(_command, root, "--session", "long"))
        if ripgrep:
            ways["ripgrep"] = timed(partial(_ripgrep, ripgrep, log))
        one = in_turns(ways, size.of(5, 1))
        many_root, count = fixtures.many_sessions(size, 10_000)
        theirs = stack.enter_context(Worker("search_agentrun", many_root, fixtures.ACCOUNT))
        ways = {"agentrun": partial(theirs.call, "search", TEXT, 1), WHOLE: timed(partial(_command, many_root))}
        if ripgrep:
            ways["ripgrep"] = timed(partial(_ripgrep, ripgrep, fixtures.account_directory(many_root) / "sessions"))
        many = in_turns(ways, size.of(5, 1))
        peaks = ours.call("peak_mb"), theirs.call("peak_mb")
    size_gb = log.stat().st_size / 1e9
    reaches = [
        Reach("GB a second in one conversation", size_gb / median(one["agentrun"]), 1, or_more=True),
        Reach("GB a second in one conversation, the whole command", size_gb / median(one[WHOLE]), 1, or_more=True),
        Reach("MB of memory at the peak, one conversation", peaks[0], 60),
        Reach("MB of memory at the peak, 10,000 sessions", peaks[1], 60),
    ]
    if ripgrep:
        reaches.append(Reach("10,000 sessions, the whole command, x ripgrep", ratio(many, WHOLE, "ripgrep"), 1))
    texts = [f"In one conversation of {1e3 * size_gb:.0f} MB:\n\n{times_table(one, 'agentrun')}"]
    texts.append(f"In {count:,} sessions:\n\n{times_table(many, 'agentrun')}")
    return "\n\n".join(filter(None, [*texts, reach_table(reaches), peers.missing_text()]))


def _command(root: Path, *words: str) -> None:
    argv = [
        sys.executable,
        "-m",
        "agentrun",
        "--root",
        str(root),
        "--account",
        fixtures.ACCOUNT,
        "search",
        TEXT,
        *words,
    ]
    found = subprocess.run(argv, env=environment(), capture_output=True, check=True)
    assert not found.stdout, found.stdout


def _ripgrep(ripgrep: Path, place: Path) -> None:
    argv = [ripgrep, "--ignore-case", "--no-config", "--hidden", "--glob", "messages.jsonl", TEXT, place]
    found = subprocess.run(argv, capture_output=True, check=False)
    assert found.returncode == 1, found.stderr


if __name__ == "__main__":
    run("Search that finds nothing", measure, __doc__)
