"""Finds the processes that belong together, and ends them.

A process belongs to a tree when it is a seed of it (the tool and its session, a marker in the
environment), when it descends from a member, or when it was a member before. Nothing is signalled by
its pid alone: the start time has to be the same, so a stranger who got a recycled pid is not touched.

The order of ending: SIGTERM, to the tool itself before anybody else is searched for, and SIGCONT to the
stopped so that they can act on it; the grace period; then everything is stopped, because what is stopped
cannot fork, and killed, until nothing is found twice in a row. What is alive after that is named. In a
subreaper, dead orphans that were never seen alive count as a finding: something forks and is gone faster
than it can be looked at.

Out of reach, without a cgroup: a process that cleared its environment and left its parents before it
was ever seen. `end_descendants` in a subreaper gets that one too.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

import anyio

from agentrun.adapters.process.marks import Mark, carries, mark_of
from agentrun.adapters.process.orphans import adopt, collect_orphans, is_body, own_children
from agentrun.adapters.process.procfs import (
    Proc,
    all_procs,
    ancestors,
    below,
    clock_ticks,
    command_of,
    read_proc,
    send_signal,
    session_of,
)
from agentrun.agent.protocols import never

KILL_SECONDS = 5.0
"""How long killing is repeated unless told otherwise. What lives then hangs in the kernel, or is not ours to signal."""

GROWTH = 64
"""A tree that grows by more processes than this while it is asked to end is not winding down."""

_QUICKEST, _SLOWEST = 0.002, 0.1  # seconds between two looks; most processes end within the first ones
_CHASE_SECONDS = 0.02  # the event loop stands still meanwhile


class Survivor(NamedTuple):
    """A process that could not be ended."""

    pid: int
    command: str


async def end_marked(
    marker: Mapping[str, str],
    *,
    grace: float,
    kill: float = KILL_SECONDS,
    spare: Callable[[], Collection[int]] = frozenset,
    is_forced: Callable[[], bool] = never,
    inside: str = "",
) -> list[Survivor]:
    """Ends every process whose environment has all of `marker`, and everything below such a process.

    Left alone: the caller, its ancestors, and the processes that `spare` names with all below them. `grace`
    is in seconds; 0 kills at once, and so does `is_forced` from the moment at which it is true. `kill` is how
    long killing is repeated. Takes at most about `grace` + `kill`, also when it is cancelled: to leave off
    half-way would leave processes stopped. `inside` is as for `mark_of`. Returns what could not be ended.
    """
    return await end_tree(_marked(marker, spare, is_forced, kill, inside), grace, anyio.sleep)


def end_marked_now(
    marker: Mapping[str, str],
    *,
    grace: float,
    kill: float = KILL_SECONDS,
    spare: Callable[[], Collection[int]] = frozenset,
    inside: str = "",
) -> list[Survivor]:
    """`end_marked` for callers without an event loop."""
    tree = _marked(marker, spare, never, kill, inside)
    for seconds in tree.ending(grace):
        time.sleep(seconds)
    return tree.survivors


async def end_descendants(
    *,
    grace: float,
    kill: float = KILL_SECONDS,
    spare: Callable[[], Collection[int]] = frozenset,
    is_forced: Callable[[], bool] = never,
) -> list[Survivor]:
    """Ends everything below the calling process, marked or not; otherwise like `end_marked`.

    In a subreaper this reaches what cleared its environment and left its parents. Only for a process
    whose children all belong to the one run that it executes.
    """
    me = os.getpid()
    tree = Tree(lambda one: one.ppid == me, spare, is_forced=is_forced, kill=kill)
    return await end_tree(tree, grace, anyio.sleep)


def _marked(
    marker: Mapping[str, str],
    spare: Callable[[], Collection[int]],
    is_forced: Callable[[], bool],
    kill: float,
    inside: str,
) -> "Tree":
    if not marker:
        raise ValueError("an empty marker would match every process")
    mark = mark_of(marker, inside)
    return Tree(lambda one: carries(one.pid, mark), spare, is_forced=is_forced, kill=kill)


def belongs(root: int, mark: Mark, one: Proc) -> bool:
    """Whether it is of the session or group of `root`, or carries the `mark`.

    The root's number stands for its session and group as long as its exit status is not collected.
    """
    return root in (one.pid, one.sid, one.pgid) or carries(one.pid, mark)


class Tree:
    """The processes that belong together, followed from one look at /proc to the next."""

    def __init__(
        self,
        is_seed: Callable[[Proc], bool],
        spare: Callable[[], Collection[int]],
        group: int | None = None,
        is_forced: Callable[[], bool] = never,
        kill: float = KILL_SECONDS,
    ) -> None:
        """`group` is a process group whose number is held by a leader that nobody has collected yet.

        As soon as `is_forced`, nobody is waited for any more; `kill` is for how many seconds killing is repeated.
        """
        self.survivors: list[Survivor] = []
        self._is_seed = is_seed
        self._spare = spare
        self._group = group
        self._is_forced = is_forced
        self._kill_seconds = kill
        self._group_is_whole = False
        self._above: set[int] = set()
        self._spared: set[int] = set()
        self._members: set[tuple[int, int]] = set()
        # What is found dead without having been seen alive tells of a process that forks and is gone
        # faster than we look.
        self._bodies: set[tuple[int, int]] | None = None
        self._fresh_bodies: set[tuple[int, int]] = set()

    def ending(self, grace: float) -> Generator[float, None, None]:
        """Ends the tree; yields the seconds to let pass before it goes on."""
        if grace > 0:
            yield from self._ask(grace)
        yield from self._kill()

    def _ask(self, grace: float) -> Generator[float, None, None]:
        deadline, pause = time.monotonic() + grace, _QUICKEST
        # First those that are known: the search of the machine takes the longer the more processes there are.
        since, asked = clock_ticks() if self._group else inf, self._ask_session()
        most = None
        while (alive := self._look()) and (left := deadline - time.monotonic()) > 0 and not self._is_forced():
            # What a living member starts once it was asked may be its way to clean up. It is not asked.
            parents = {one.pid for one in alive}
            fresh = [
                one for one in alive if one.identity not in asked and not (one.ppid in parents and one.start >= since)
            ]
            since = 0
            self._signal(fresh, signal.SIGTERM)
            self._signal((one for one in alive if one.state == "T"), signal.SIGCONT)
            asked.update(one.identity for one in fresh)
            most = most or len(alive) + GROWTH
            if len(alive) > most:
                return
            yield min(pause, left)
            pause = min(2 * pause, _SLOWEST)

    def _ask_session(self) -> set[tuple[int, int]]:
        """Asks the tool, and what it started in its session, to end; returns who was asked."""
        if self._group is None:
            return set()
        seen = session_of(self._group)
        self._signal(seen[:1], signal.SIGTERM)
        spared = below({one.pid: one for one in seen}, self._spare()) if len(seen) > 1 else ()
        asked = [one for one in seen if one.pid not in spared]
        self._signal(asked[1:], signal.SIGTERM)
        return {one.identity for one in asked}

    def _kill(self) -> Generator[float, None, None]:
        deadline, pause = time.monotonic() + self._kill_seconds, _QUICKEST
        stopped: set[tuple[int, int]] = set()
        # One empty look proves nothing: a process can fork behind the reader of the directory, and in
        # the middle of an exec it shows no environment.
        empty_looks = 0
        while empty_looks < 2 and time.monotonic() < deadline:
            alive = self._look()
            empty_looks = 0 if alive or self._fresh_bodies else empty_looks + 1
            if self._fresh_bodies:
                self._chase()
            fresh = [one for one in alive if one.identity not in stopped]
            if fresh:
                self._signal_group(signal.SIGSTOP)
                self._signal(fresh, signal.SIGSTOP)
                stopped.update(one.identity for one in fresh)
                yield _QUICKEST
            else:
                self._signal_group(signal.SIGKILL)
                self._signal(alive, signal.SIGKILL)
                yield pause
                pause = min(2 * pause, _SLOWEST)
        if empty_looks < 2:
            self.survivors = [Survivor(one.pid, command_of(one.pid)) for one in self._look()]
            newest = sorted(self._fresh_bodies, key=lambda identity: identity[1])[-1:]
            self.survivors += [Survivor(pid, "(gone, but what it started runs on)") for pid, _ in newest]

    def _chase(self) -> None:
        """Stops a process that forks and is gone before a look is over, by trying the newest pid only."""
        end, newest = time.monotonic() + _CHASE_SECONDS, 0
        while time.monotonic() < end:
            last, newest = newest, int(Path("/proc/loadavg").read_bytes().split()[-1])  # proc(5)
            one = read_proc(newest) if newest not in (last, *self._above) else None
            if one and one.alive and self._is_seed(one) and not self._is_spared(one):
                send_signal(one, signal.SIGSTOP)
                self._members.add(one.identity)

    def _is_spared(self, one: Proc) -> bool:
        # A look at all of /proc would take longer than such a process lives.
        return one.pid in self._spared or one.ppid in self._spared

    def _look(self) -> list[Proc]:
        """The members that are alive now."""
        procs = all_procs()
        self._above = ancestors(procs, os.getpid())
        self._spared = below(procs, self._spare())
        untouchable = self._above | self._spared
        self._group_is_whole = all(procs[pid].pgid != self._group for pid in untouchable & procs.keys())
        known = [one.pid for one in procs.values() if one.identity in self._members]
        found = below(procs, known, untouchable)
        # Reading the environment of those that are not yet found is the dear part of a look.
        rest = [one for one in procs.values() if one.pid not in found and self._is_seed(one)]
        found |= below(procs, [one.pid for one in rest], untouchable)
        members = [procs[pid] for pid in found]
        self._members.update(one.identity for one in members)
        adopt(one for one in members if self._is_orphan(one))
        others = own_children - {self._group}
        bodies = {one.identity for one in procs.values() if is_body(one) and one.sid not in others}
        bodies -= self._members
        self._fresh_bodies = bodies - self._bodies if self._bodies is not None else set()
        self._bodies = bodies
        collect_orphans(procs)
        return [one for one in members if one.alive]

    def _is_orphan(self, one: Proc) -> bool:
        # Of a tool's tree only the tool itself is a child that we started.
        of_a_tool = self._group is not None and one.pid not in own_children
        return of_a_tool or one.ppid != os.getpid()

    def _signal(self, to: Iterable[Proc], number: int) -> None:
        for one in to:
            send_signal(one, number)

    def _signal_group(self, number: int) -> None:
        """All of the tool's group in one call: none of them can fork meanwhile."""
        if self._group is not None and self._group_is_whole:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, number)


async def end_tree(tree: Tree, grace: float, pause: Callable[[float], Awaitable[None]]) -> list[Survivor]:
    """Ends the tree and returns what could not be ended; a cancellation waits for it."""
    with anyio.CancelScope(shield=True):
        for seconds in tree.ending(grace):
            await pause(seconds)
    return tree.survivors
