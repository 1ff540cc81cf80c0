"""How long after an event was appended its line comes out of another process that follows the run.

From before the durable append until the line is read from the pipe. `agentrun show -f --json` makes the file last
before it prints what is in it, since a script may keep the number: `tail -f` and others print what a power cut could
take away. So a sync is what bounds it: "inotify and a sync" is a loop of four lines that does nothing else.

What is left beyond that is the interpreter: from the kernel's word to the line it takes agentrun 0.18 ms of the
processor, beside the sync, and 0.45 ms for the slowest of 400 lines. A line takes 0.27 ms with all, where the loop
takes 0.10 ms; how the run stands is looked at for lines that may change it, and once a second. None of the longest
waits was for memory to be collected, or for an event of the kernel that was lost: they are those of the sync, which
waits for the writer's own, and of a process that the scheduler lets wait.

Idle is the processor's time while nothing happens: `show -f` looks once a second whether the executor still lives, for
1 to 2 ms with cold caches.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import peers
from fixtures import ACCOUNT
from frame import HERE, Reach, Size, Taken, environment, median, percentile, reach_table, run, shown, table

from agentrun.states import EventType
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept

OURS, TAIL, SYNCED = "agentrun show -f", "tail -f", "inotify and a sync"
PAUSE = 0.004
# Lines in a round: of what answers at once so many that a 99th percentile is not one of three.
MANY, FEW = 200, 40
IDLE_SECONDS = 2.0


class Stand:
    """A run that goes on, and the lines that follow it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        session = Tree(str(self.root), ACCOUNT).create_session(session_id="watched")
        self._executor = Executor(session, accept(session).run_id)
        self._executor.append(EventType.MODEL_REQUEST_STARTED, operationId="op-0", model="m", attempt=1)
        self.log = Path(self._executor.run_dir.directory.path) / "operations.jsonl"

    def append(self, name: str) -> None:
        self._executor.append(EventType.TOOL_REMOTE_ID, operationId="op-0", remoteId=name)


class Follower:
    """A process that follows, and when which line came."""

    def __init__(self, argv: list[str]) -> None:
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment())
        self._seen: dict[str, float] = {}
        self._came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def when(self, name: str, seconds: float) -> float | None:
        """When the line of the event `name` came; None if it does not within that time."""
        with self._came:
            self._came.wait_for(lambda: name in self._seen, seconds)
            return self._seen.get(name)

    def processor_seconds(self) -> float:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text("utf-8").split()[0]) for each in threads) / 1e9

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            now = time.perf_counter()
            name = line.rpartition(b'"remoteId":"')[2].partition(b'"')[0].decode()
            with self._came:
                self._seen[name] = now
                self._came.notify_all()


def measure(size: Size) -> str:
    stand = Stand(size.folder)
    ours = [sys.executable, "-m", "agentrun", "--root", str(stand.root), "--account", ACCOUNT]
    ways = {
        OURS: [*ours, "show", "-f", "--json", "watched/1"],
        TAIL: ["tail", "-n", "0", "-f", str(stand.log)],
        SYNCED: [sys.executable, str(HERE / "work/follow.py"), "synced", str(stand.log)],
        "polling, 10 times a second": [sys.executable, str(HERE / "work/follow.py"), "polling", str(stand.log)],
    }
    python = peers.python(peers.WATCHFILES, size)
    if python:
        ways["watchfiles, defaults"] = [str(python), str(HERE / "work/follow.py"), "watchfiles", str(stand.log)]
    taken: Taken = {name: [] for name in ways}
    idle: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(size.of(5, 1)):
        for name, argv in ways.items():
            follower = Follower(argv)
            try:
                count = MANY if name in (OURS, TAIL, SYNCED) else FEW
                taken[name].append(_followed(stand, follower, f"{number}-{len(taken[name])}", size.of(count, 5)))
                before = follower.processor_seconds()
                time.sleep(size.of(20, 1) / 20 * IDLE_SECONDS)
                idle[name].append((follower.processor_seconds() - before) / IDLE_SECONDS)
            finally:
                follower.close()
    return "\n\n".join(filter(None, [_table(taken, idle), reach_table(_reaches(taken, idle)), peers.missing_text()]))


def _followed(stand: Stand, follower: Follower, round_name: str, count: int) -> list[float]:
    # Until the first of these comes, it is still starting.
    for number in range(200):
        stand.append(f"{round_name}-start-{number}")
        if follower.when(f"{round_name}-start-{number}", 0.3) is not None:
            break
    seconds = []
    for number in range(count):
        name = f"{round_name}-{number}"
        time.sleep(PAUSE)
        start = time.perf_counter()
        stand.append(name)
        came = follower.when(name, 10)
        if came is None:
            raise RuntimeError(f"the line of event {name} did not come")
        seconds.append(came - start)
    return seconds


def _table(taken: Taken, idle: dict[str, list[float]]) -> str:
    rows = []
    for name, rounds in taken.items():
        median_ratio = f"{median(rounds) / median(taken[TAIL]):.2f}"
        busy = f"{sum(idle[name]) / len(idle[name]):.3%}"
        rows.append((name, shown(median(rounds)), shown(percentile(rounds)), median_ratio, busy))
    return table(("way", "median", "p99", f"x {TAIL}", "processor while idle"), rows)


def _reaches(taken: Taken, idle: dict[str, list[float]]) -> list[Reach]:
    ours, theirs = taken[OURS], taken[TAIL]
    synced = taken[SYNCED]
    return [
        Reach(f"median, x {SYNCED}", median(ours) / median(synced), 1.2),
        Reach(f"p99, x {SYNCED}", percentile(ours) / percentile(synced), 1.2),
        Reach(f"median, x {TAIL}", median(ours) / median(theirs), 1.0),
        Reach(f"p99, x {TAIL}", percentile(ours) / percentile(theirs), 1.0),
        Reach("processor while idle, %", 100 * max(idle[OURS]), 0.5),
    ]


if __name__ == "__main__":
    run("Live tail", measure, __doc__)
