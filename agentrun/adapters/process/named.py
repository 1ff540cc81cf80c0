"""Ends one process that is known by more than its number, and what descends from it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise

from agentrun.adapters.process.marks import carries, mark_of
from agentrun.adapters.process.procfs import proc_file, read_proc, send_signal
from agentrun.adapters.process.tree import Tree

_PAUSE = 0.005


def end_named(pid: int, start: int, *, patience: float) -> bool:
    """Kills the process `pid` that started at `start` (clock ticks since boot), and waits until it is gone.

    Whether it is gone, which it may have been before: another process that got its number since is left alone. What
    the kernel does not let go within `patience` seconds (it hangs on a dead disk) is not.
    """
    deadline = time.monotonic() + patience
    found = read_proc(pid)
    while found is not None and found.start == start and found.alive:
        send_signal(found, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
        found = read_proc(pid)
    return True


def end_executor(
    pid: int,
    start: int,
    marker: Mapping[str, str],
    *,
    grace: float,
    kill: float,
    program: str,
    spare: Callable[[], Collection[int]],
) -> bool:
    """As `end_named`, of a process that executes a run. What it alone tells for its own goes first: children of it

    without the run's `marker`, by which all else is found later.

    Of one that is not `program` itself they are left alone: it is an application that has a run of its own. `grace` and
    `kill` are in seconds as for `end_marked`; what `spare` names is left alone, with all below it.
    """
    found, mark = read_proc(pid), mark_of(marker)
    if found is not None and found.start == start and _is_program(pid, program):
        send_signal(found, signal.SIGSTOP)  # lest it begins more, or wakes up meanwhile
        tree = Tree(lambda one: one.ppid == pid and not carries(one.pid, mark), lambda: set(spare()) - {pid}, kill=kill)
        for seconds in tree.ending(grace):
            time.sleep(seconds)
    return end_named(pid, start, patience=kill)


def _is_program(pid: int, program: str) -> bool:
    """Whether it runs as `python -m PROGRAM`, or a module of it, or as a script of that name."""
    name = program.encode()
    words = proc_file(pid, "cmdline").split(b"\0")[:5]
    modules = [after for word, after in pairwise(words) if word == b"-m"]
    return any(each.split(b".")[0] == name for each in modules) or name in [each.rpartition(b"/")[2] for each in words]
