"""From `agentrun cancel` returning until the executor has seen it, its tool is told, and the whole tree of it is gone.

The tool is a process with two children; beside it a tool of a plug-in waits inside the executor, and notes when it is
stopped: then the executor has seen it. A signal to the executor is what a user's Ctrl-C is: the executor stores the
intent itself, so that less is stored when it is sent. Polling is a program that looks for a file ten times a second and
signals the tool, records nothing and has no executor. The last table is about whole commands, from the moment at which
they are started; what `acpx cancel` talks to is an agent that waits.

A cancel is stored when it returns, and its executor finds it; one that gets a signal has to store what is asked first.
Of so few rounds the 99th percentile is the longest.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import peers
from frame import HERE, Reach, Size, Taken, environment, in_turns, median, percentile, reach_table, run, times_table

from agentrun.commands import stops
from agentrun.commands.names import Target, find
from agentrun.commands.place import Place, find_place

ACPX = peers.Peer("acpx", ("acpx@0.1.15",), is_node=True)
POLL_SECONDS = 0.1
PATIENCE = 60.0
NULL = subprocess.DEVNULL
SIGNAL, CANCEL, POLLING = "signal to the executor", "agentrun cancel", "polling, 10 times a second"
TYPED, TYPED_ACPX = "agentrun cancel, typed", "acpx cancel, typed"
# What a round of each way takes: until nothing of the tool is left, until it is told, until the executor has seen it.
GONE, TOLD, SEEN = range(3)

TOOL = """\
import os, signal, subprocess, sys, time
folder = sys.argv[1]
def note(name, text):
    with open(f"{folder}/{name}.new", "w") as file:
        file.write(text)
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}")
def end(*_):
    note("told", str(time.monotonic_ns()))
    os._exit(0)
children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
signal.signal(signal.SIGTERM, end)
note("pids", " ".join(map(str, [os.getpid(), *(child.pid for child in children)])))
while True:
    signal.pause()
"""

POLLER = """\
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(float(sys.argv[2]))
for pid in sys.argv[3:]:
    os.kill(int(pid), 15)
"""

POINTS = "[agentrun.tools]\nnoticing = noticing:Noticing\n"


class Stand:
    """A root with one agent, which calls two tools that wait until they are stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "tool.py").write_text(TOOL, "utf-8")
        # An installed package, as far as Python can tell.
        package = folder / "agentrun_bench-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: agentrun-bench\nVersion: 1\n", "utf-8")
        (package / "entry_points.txt").write_text(POINTS, "utf-8")
        turns = [{"calls": [{"name": "notice"}, {"name": "work"}]}]
        (folder / "script.json").write_text(json.dumps({"turns": turns}), "utf-8")
        argv = [sys.executable, str(folder / "tool.py"), str(folder)]
        lines = ["[agents.a]", 'model = "scripted:script.json"', 'tools = ["notice", "work"]']
        lines += ["[tools.work]", f"argv = {json.dumps(argv)}", 'effect = "read"']
        lines += ["[tools.notice]", 'kind = "noticing"', 'effect = "read"']
        (folder / "agentrun.toml").write_text("\n".join(lines), "utf-8")
        paths = os.pathsep.join(map(str, [folder, HERE / "work", HERE.parent]))
        self.environment = environment(
            AGENTRUN_ROOT=str(folder), AGENTRUN_CONFIG=str(folder / "agentrun.toml"), PYTHONPATH=paths
        )
        self.place: Place = find_place(self.environment)

    def begin(self) -> tuple[Target, int, list[int]]:
        """A detached run in its tools: the run, its executor, and the processes of the tool."""
        for name in ("pids", "told", "noticed", "stop"):
            (self.folder / name).unlink(missing_ok=True)
        session = self.agentrun("new")
        self.agentrun("send", session, "go", "--detach")
        pids = [int(pid) for pid in wait_for(self.folder / "pids").split()]
        target = find(self.place.tree, f"{session}/1")
        owner = target.run().load().lease_owner or {}
        return target, int(owner["pid"]), pids

    def agentrun(self, *words: str) -> str:
        """What a command prints; its exit code is of no interest."""
        argv = [sys.executable, "-m", "agentrun", *words]
        return subprocess.run(argv, env=self.environment, check=False, capture_output=True, text=True).stdout.strip()


def wait_for(path: Path) -> str:
    """The contents of a file, as soon as it is there."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.002)
    return path.read_text("utf-8")


# Ways to stop: each returns when it had been asked for, in nanoseconds.


def by_command(stand: Stand, target: Target, executor: int, pids: list[int]) -> int:
    stops.cancel(stand.place, target, "measured")
    return time.monotonic_ns()


def by_typing(stand: Stand, target: Target, executor: int, pids: list[int]) -> int:
    started = time.monotonic_ns()
    stand.agentrun("cancel", target.run().name)
    return started


def by_signal(stand: Stand, target: Target, executor: int, pids: list[int]) -> int:
    os.kill(executor, signal.SIGINT)
    return time.monotonic_ns()


def by_polling(stand: Stand, target: Target, executor: int, pids: list[int]) -> int:
    arguments = [str(stand.folder / "stop"), str(POLL_SECONDS), *map(str, pids)]
    poller = subprocess.Popen([sys.executable, "-c", POLLER, *arguments])
    # Somewhere in its period: a user does not come in step with it.
    time.sleep(0.3 + (time.monotonic_ns() % 97) / 97 * POLL_SECONDS)
    (stand.folder / "stop").touch()
    stopped = time.monotonic_ns()
    poller.wait()
    return stopped


def stopped_by(stand: Stand, way: Callable[[Stand, Target, int, list[int]], int]) -> list[float]:
    """One round: the seconds until the tree was gone, the tool was told and the executor had seen it, if there is one.

    The run is over afterwards, whichever way it was.
    """
    target, executor, pids = stand.begin()
    watched = [os.pidfd_open(pid) for pid in pids]
    asked = way(stand, target, executor, pids)
    left = set(watched)
    while left:
        ended = select.select(list(left), [], [], PATIENCE)[0]
        if not ended:
            raise TimeoutError(f"{len(left)} processes of the tool did not end")
        left -= set(ended)
    moments = [time.monotonic_ns(), int(wait_for(stand.folder / "told"))]
    for descriptor in watched:
        os.close(descriptor)
    if way is by_polling:
        stand.agentrun("cancel", target.run().name, "--wait")
    else:
        moments.append(int(wait_for(stand.folder / "noticed")))
        while not target.run().load().is_over:
            time.sleep(0.002)
    return [max(moment - asked, 0) / 1e9 for moment in moments]


class Acpx:
    """`acpx` with an agent that waits, in a home of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._environment = environment(HOME=str(folder))
        agent = f"{sys.executable} {HERE / 'work' / 'acpx_agent.py'} {folder}"
        self._argv = [str(program), "--agent", agent, "--cwd", str(folder), "--approve-all", "--ttl", "1"]

    def cancelled(self) -> list[float]:
        """One round: the seconds from the start of `acpx cancel` until the agent was told."""
        for name in ("working", "noticed"):
            (self._folder / name).unlink(missing_ok=True)
        self._call("sessions", "new")
        prompt = subprocess.Popen([*self._argv, "prompt", "go"], env=self._environment, stdout=NULL, stderr=NULL)
        wait_for(self._folder / "working")
        started = time.monotonic_ns()
        self._call("cancel")
        noticed = int(wait_for(self._folder / "noticed"))
        prompt.wait(PATIENCE)
        return [(noticed - started) / 1e9]

    def _call(self, *words: str) -> None:
        subprocess.run([*self._argv, *words], env=self._environment, check=True, capture_output=True, timeout=PATIENCE)


def part(taken: Taken, which: int, *names: str) -> Taken:
    """One of the times of a round, for the ways that have it."""
    return {name: [[seconds[which]] for seconds in taken[name]] for name in names}


def measure(size: Size) -> str:
    # What a shell script starts in the background ignores it, and so would the executors that are started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stand = Stand(size.folder / "stand")
    hows = {CANCEL: by_command, SIGNAL: by_signal, POLLING: by_polling, TYPED: by_typing}
    ways: dict[str, Callable[[], list[float]]] = {name: partial(stopped_by, stand, how) for name, how in hows.items()}
    acpx = peers.program(ACPX, "acpx", size)
    if acpx:
        ways[TYPED_ACPX] = Acpx(acpx, size.folder / "acpx").cancelled
    taken = in_turns(ways, size.of(10, 1))
    seen = part(taken, SEEN, CANCEL, SIGNAL)
    typed = part(taken, SEEN, TYPED)
    if acpx:
        typed |= part(taken, 0, TYPED_ACPX)
    told = part(taken, TOLD, CANCEL, SIGNAL, POLLING)
    gone = part(taken, GONE, CANCEL, SIGNAL, POLLING)
    bounds = {"seen": seen, "the tool is told": told, "all of it is gone": gone}
    reaches = [Reach("cancel returns -> seen, median in ms", 1e3 * median(seen[CANCEL]), 15)]
    for until, times in bounds.items():
        longer = percentile(times[CANCEL]) / percentile(times[SIGNAL])
        reaches.append(Reach(f"cancel returns -> {until}, p99, x {SIGNAL}", longer, 1.5))
    parts = [
        "Until the executor has seen it:",
        times_table(seen, SIGNAL),
        "Until the tool has its signal:",
        times_table(told, SIGNAL),
        "Until all of the tool is gone:",
        times_table(gone, SIGNAL),
        "From the start of the command until the executor, or the agent, has seen it:",
        times_table(typed, TYPED),
        reach_table(reaches),
        peers.missing_text(),
    ]
    return "\n\n".join(each for each in parts if each)


if __name__ == "__main__":
    run("Cancel", measure, __doc__)
