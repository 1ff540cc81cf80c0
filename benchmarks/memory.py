"""The most memory that commands take on large trees, and on small ones of the same kind.

A run of 10,000 operations, a session of 1,000,000 messages in 300 MB, a tree of 100,000 sessions; of the small ones,
each has about two hundred times less. Whole processes, the interpreter with them.

What grows: the list of what a text names remembers which of the 100,000 sessions it has seen, in 11 to 16 bytes each.
`show --timeline` reads the events three times, to see what is told late, for its axis, and to draw. It holds the
operations that are under way, as many bytes of each that is over, and until the axis is there the times of those that
stand apart; of each thing that the user said and the run took, fifty bytes. `show --html` holds as much, and 8 bytes of
each message.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import fixtures
from frame import Reach, Size, environment, reach_table, run, shown, table

MOST_MB = 60
# Beside the noise of an allocator.
FLAT = 1.25

# The peak of a process counts from before its exec(2): so it is started by one that is smaller than any command.
LAUNCHER = """\
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""

COMMANDS = {
    "run": [
        ["show", "worked/1"],
        ["show", "worked/1", "--json"],
        ["show", "worked/1", "--operations"],
        ["show", "worked/1", "--timeline"],
        ["show", "worked/1", "--timeline", "--json"],
        ["show", "worked/1", "--html", "-"],
        ["show", "worked"],
        ["wait", "worked/1"],
        ["check", "worked"],
    ],
    "session": [
        ["show", "long"],
        ["show", "long", "--json"],
        ["show", "long", "--messages", "--tail", "20"],
        ["show", "long", "--messages", "--since", "900000"],
        ["search", "refund of week seventeen", "--session", "long"],
        ["check", "long"],
    ],
    "tree": [
        ["ls"],
        ["ls", "--limit", "1000"],
        ["ls", "nothing is called so"],
        ["new", "one more"],
        ["recover", "--dry-run"],
    ],
}


def measure(size: Size) -> str:
    small = Size(True, size.folder / "small")
    small.folder.mkdir()
    roots = {
        "run": (fixtures.long_run(size)[0], fixtures.long_run(small)[0]),
        "session": (fixtures.long_session(size)[0], fixtures.long_session(small)[0]),
        "tree": (fixtures.many_sessions(size, 100_000)[0], fixtures.many_sessions(small, 100_000)[0]),
    }
    rows, most, steepest = [], 0.0, 0.0
    for kind, commands in COMMANDS.items():
        for words in commands:
            large, little = (_peak(root, words) for root in roots[kind])
            most, steepest = max(most, large[0]), max(steepest, large[0] / little[0])
            shape = f"{large[0]:.1f} MB", f"{little[0]:.1f} MB", f"{large[0] / little[0]:.2f}"
            rows.append((f"{kind}: `{' '.join(words)}`", *shape, shown(large[1])))
    reaches = [Reach("MB, the command that takes most", most, MOST_MB), Reach("large, x small", steepest, FLAT)]
    return f"{table(('', 'large', 'small', 'ratio', 'time, large'), rows)}\n\n{reach_table(reaches)}"


def _peak(root: Path, words: list[str]) -> tuple[float, float]:
    """Megabytes at the peak of a command, and its seconds. Raises RuntimeError if it fails."""
    argv = [sys.executable, "-m", "agentrun", "--root", str(root), "--account", fixtures.ACCOUNT, *words]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *argv],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    said, _, kilobytes = done.stderr.rstrip().rpartition("\n")
    # 6: something is left for `recover`; the long session has a run that nobody executes.
    if done.returncode not in (0, 6):
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {said[-200:]}")
    return int(kilobytes) / 1024, seconds


if __name__ == "__main__":
    run("Memory of commands", measure, __doc__)
