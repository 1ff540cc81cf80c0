"""How long a stop takes to arrive, and until the whole tree of a tool is gone.

    python benchmarks/cancel.py [ROUNDS] [--small]

Three ways, in turns within one run, so that a busy moment hits all of them: `agentrun cancel` (from the moment at which
the intent is stored and the command would return), a signal sent straight to the executor, and what a program would get
that looks for a file ten times a second and then signals the tool itself, recording nothing. The tool is a process with
two children. That the executor has seen the stop is taken from SIGTERM reaching the tool, which is later, never sooner.
Prints the result and writes it into `results.md`, in a section of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agentrun.commands import control
from agentrun.commands.names import Target, find
from agentrun.commands.place import Place, find_place

ROUNDS = 30
POLL_SECONDS = 0.1
RESULTS = Path(__file__).resolve().parent / "results.md"
HEADING = "## Cancel"
PATIENCE = 30.0

TOOL = """\
import os, signal, subprocess, sys, time
folder = sys.argv[1]
children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
def end(*_):
    with open(folder + "/seen.new", "w") as file:
        file.write(str(time.monotonic_ns()))
    os.rename(folder + "/seen.new", folder + "/seen")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
with open(folder + "/pids.new", "w") as file:
    file.write(" ".join(map(str, [os.getpid(), *(child.pid for child in children)])))
os.rename(folder + "/pids.new", folder + "/pids")
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


class Taken(NamedTuple):
    """Milliseconds of one round: until the tool had the signal, and until nothing of its tree was left."""

    seen: float
    gone: float


class Stand:
    """A root with one agent, whose tool runs until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tool.py").write_text(TOOL, "utf-8")
        turns = [{"calls": [{"name": "work"}]}]
        (folder / "script.json").write_text(json.dumps({"turns": turns}), "utf-8")
        argv = [sys.executable, str(folder / "tool.py"), str(folder)]
        lines = ["[agents.a]", 'model = "scripted:script.json"', 'tools = ["work"]']
        lines += ["[tools.work]", f"argv = {json.dumps(argv)}", 'effect = "read"']
        (folder / "agentrun.toml").write_text("\n".join(lines), "utf-8")
        environment = os.environ | {"AGENTRUN_ROOT": str(folder), "AGENTRUN_CONFIG": str(folder / "agentrun.toml")}
        self.environment = environment
        self.place: Place = find_place(environment)

    def begin(self) -> tuple[Target, int, list[int]]:
        """A detached run in its tool: the run, its executor and the processes of the tool."""
        for name in ("pids", "seen", "stop"):
            (self.folder / name).unlink(missing_ok=True)
        session = self._agentrun("new")
        self._agentrun("send", session, "go", "--detach")
        pids = [int(pid) for pid in self.wait_for("pids").split()]
        target = find(self.place.tree, f"{session}/1")
        owner = target.run().load().lease_owner or {}
        return target, int(owner["pid"]), pids

    def wait_for(self, name: str) -> str:
        """What the tool writes into that file."""
        path, until = self.folder / name, time.monotonic() + PATIENCE
        while not path.exists():
            if time.monotonic() > until:
                raise SystemExit(f"{path} did not come")
            time.sleep(0.002)
        return path.read_text("utf-8")

    def _agentrun(self, *words: str) -> str:
        argv = [sys.executable, "-m", "agentrun", *words]
        return subprocess.run(argv, env=self.environment, check=True, capture_output=True, text=True).stdout.strip()


def by_command(stand: Stand, target: Target, executor: int, pids: list[int]) -> int:
    control.cancel(stand.place, target, "measured")
    return time.monotonic_ns()


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


WAYS: dict[str, Callable[[Stand, Target, int, list[int]], int]] = {
    "agentrun cancel": by_command,
    "signal to the executor": by_signal,
    "polling, 10 times a second": by_polling,
}


def measure(stand: Stand, way: Callable[[Stand, Target, int, list[int]], int]) -> Taken:
    """One round. The run is over afterwards, whichever way it was."""
    target, executor, pids = stand.begin()
    watched = [os.pidfd_open(pid) for pid in pids]
    stopped = way(stand, target, executor, pids)
    left = set(watched)
    while left:
        left -= set(select.select(list(left), [], [], PATIENCE)[0])
    gone = time.monotonic_ns()
    for descriptor in watched:
        os.close(descriptor)
    seen = int(stand.wait_for("seen"))
    if not target.run().load().is_over:
        subprocess.run(
            [sys.executable, "-m", "agentrun", "cancel", target.run().name, "--wait"],
            env=stand.environment,
            check=False,
            capture_output=True,
        )
    return Taken(max(seen - stopped, 0) / 1e6, (gone - stopped) / 1e6)


def table(taken: dict[str, list[Taken]]) -> str:
    """The result, in Markdown."""
    lines = [
        "| way | seen: median ms | p99 ms | x signal | tree gone: median ms | p99 ms | x signal |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    base = taken["signal to the executor"]
    for name, rounds in taken.items():
        cells = [name]
        for field in ("seen", "gone"):
            values = sorted(getattr(each, field) for each in rounds)
            reference = statistics.median(getattr(each, field) for each in base) or 0.001
            median, p99 = statistics.median(values), values[min(len(values) - 1, round(0.99 * len(values)))]
            cells += [f"{median:.1f}", f"{p99:.1f}", f"{median / reference:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Puts the section into the page, in place of an earlier one."""
    page = RESULTS.read_text("utf-8") if RESULTS.exists() else "# Results\n"
    before, found, rest = page.partition(f"{HEADING}\n")
    _, following, after = rest.partition("\n## ") if found else ("", "", "")
    section = f"{HEADING}\n\n{text}\n"
    RESULTS.write_text(f"{before.rstrip()}\n\n{section}" + (f"\n## {after}" if following else ""), "utf-8")


def main(arguments: list[str]) -> None:
    is_small = "--small" in arguments
    numbers = [int(each) for each in arguments if each.isdigit()]
    rounds = numbers[0] if numbers else 1 if is_small else ROUNDS
    taken: dict[str, list[Taken]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory(prefix="agentrun-bench-") as folder:
        stand = Stand(Path(folder).resolve())
        for number in range(rounds + 1):
            for name, way in WAYS.items():
                each = measure(stand, way)
                if number:  # the first round warms the caches
                    taken[name].append(each)
    circumstances = f"{rounds} rounds of each way in turns, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}."
    what = "Since the stop was stored or sent,\nuntil the tool has the signal, and until all of it is gone."
    text = f"{circumstances} {what}\n\n{table(taken)}"
    print(f"{HEADING}\n\n{text}\n")
    if not is_small:
        write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
