"""Finds the processes that belong together, and ends them.

A process belongs to a tree when it is a seed of it (the tool and its session, a marker in the
environment), when it descends from a member, or when it was a member before. Nothing is signalled by
its pid alone: the start time has to be the same, so a stranger who got a recycled pid is not touched.

The order of ending: SIGTERM, and SIGCONT to the stopped so that they can act on it; the grace period;
then everything is stopped, because what is stopped cannot fork, and killed, until nothing is found
twice in a row. What is alive after that is named. In a subreaper, dead orphans that were never seen
alive count as a finding: something forks and is gone faster than it can be looked at.

Out of reach, without a cgroup: a process that cleared its environment and left its parents before it
was ever seen. `end_descendants` in a subreaper gets that one too.
"""

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio

KILL_SECONDS = 5.0
"""How long killing is repeated. What lives then hangs in the kernel, or is not ours to signal."""

GROWTH = 64
"""A tree that grows by more processes than this while it is asked to end is not winding down."""

STATUS_SECONDS = 1.0
"""A dead child of unknown origin whose status nobody wanted for so long is an orphan that was never seen
alive. Left alone, thousands of them could use up the machine's process numbers."""

_QUICKEST, _SLOWEST = 0.002, 0.1  # seconds between two looks; most processes end within the first ones
_CHASE_SECONDS = 0.02  # the event loop stands still meanwhile
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

own_children: set[int] = set()
"""Pids whose exit status someone in this process waits for: nobody else may collect it."""

_adopted: set[tuple[int, int]] = set()
"""Orphans, by pid and start time: they were seen with another parent, or were left by a tool that ended.
Once they are our children nothing tells them from those we started."""

_dead_since: dict[tuple[int, int], float] = {}
"""Dead children of unknown origin, and when they were first seen so."""


class Survivor(NamedTuple):
    """A process that could not be ended."""

    pid: int
    command: str


async def end_marked(
    marker: Mapping[str, str], *, grace: float, spare: Collection[int] = frozenset()
) -> list[Survivor]:
    """Ends every process whose environment has all of `marker`, and everything below such a process.

    Left alone: the caller, its ancestors, and the processes in `spare` with all below them. `grace` is
    in seconds; 0 kills at once. Takes at most about `grace` + `KILL_SECONDS`, also when it is cancelled:
    to leave off half-way would leave processes stopped. Returns what could not be ended.
    """
    return await end_tree(_marked(marker, spare), grace, anyio.sleep)


def end_marked_now(marker: Mapping[str, str], *, grace: float, spare: Collection[int] = frozenset()) -> list[Survivor]:
    """`end_marked` for callers without an event loop."""
    tree = _marked(marker, spare)
    for seconds in tree.ending(grace):
        time.sleep(seconds)
    return tree.survivors


async def end_descendants(*, grace: float, spare: Collection[int] = frozenset()) -> list[Survivor]:
    """Ends everything below the calling process, marked or not; otherwise like `end_marked`.

    In a subreaper this reaches what cleared its environment and left its parents. Only for a process
    whose children all belong to the one run that it executes.
    """
    me = os.getpid()
    return await end_tree(Tree(lambda one: one.ppid == me, lambda: spare), grace, anyio.sleep)


def become_subreaper() -> None:
    """Makes orphans below this process its children (prctl(2)): they can be found, and collected.

    Without it they go to init, out of the tree. Also wants to hear of their ends: where SIGCHLD was
    ignored when this process was started, the kernel throws every exit status away (wait(2)). For the
    main thread. Raises OSError where the kernel refuses.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def _marked(marker: Mapping[str, str], spare: Collection[int]) -> "Tree":
    if not marker:
        raise ValueError("an empty marker would match every process")
    items = environment_items(marker)
    return Tree(lambda one: carries(one.pid, items), lambda: spare)


# What /proc says.


class Proc(NamedTuple):
    """One process as /proc/PID/stat has it."""

    pid: int
    start: int
    """Clock ticks since boot; with the pid it names one process for as long as the system runs."""
    ppid: int
    pgid: int
    sid: int
    state: str
    threads: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start

    @property
    def alive(self) -> bool:
        # A process whose first thread has ended looks like a zombie while the others run on.
        return self.state not in "ZXx" or self.threads > 1


def read_proc(pid: int) -> Proc | None:
    """None: there is no such process. Any other trouble is raised, it must not pass for "nothing left"."""
    content = _proc_file(pid, "stat")
    if not content:
        return None
    # The name before it is free text, with spaces and parentheses if its owner likes.
    fields = content[content.rindex(b")") + 2 :].split()
    state, ppid, pgid, sid = fields[:4]
    return Proc(pid, int(fields[19]), int(ppid), int(pgid), int(sid), state.decode(), int(fields[17]))


def carries(pid: int, items: frozenset[bytes]) -> bool:
    """Whether the environment that the process was started with has all these `KEY=value`."""
    return bool(items) and items.issubset(_proc_file(pid, "environ").split(b"\0"))


def environment_items(marker: Mapping[str, str]) -> frozenset[bytes]:
    return frozenset(os.fsencode(f"{key}={value}") for key, value in marker.items())


def _proc_file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # gone, or of another user: not ours to end


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _all_procs() -> dict[int, Proc]:
    return {pid: proc for pid in _pids() if (proc := read_proc(pid))}


def _command(pid: int) -> str:
    line = _proc_file(pid, "cmdline").replace(b"\0", b" ").strip() or _proc_file(pid, "comm").strip()
    return line[:200].decode(errors="backslashreplace")


# Signals, and the exit status of orphans.


def send_signal(to: Proc, number: int) -> None:
    """Signals this process and no other that may have got its pid meanwhile."""
    descriptor = open_pidfd(to.pid)
    try:
        now = read_proc(to.pid)
        if now is None or now.start != to.start:
            return
        with suppress(ProcessLookupError, PermissionError):
            if descriptor is None:
                os.kill(to.pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_pidfd(pid: int) -> int | None:
    """A descriptor that stays with this process, or None where there is none to be had."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel or C library; no process; no free descriptor
        return None


def settle(items: frozenset[bytes]) -> None:
    """When a tool has ended: takes note of what it left to us, and collects what is dead of that."""
    procs = _all_procs()
    ours = [one for one in procs.values() if one.ppid == os.getpid() and one.pid not in own_children]
    _adopted.update(one.identity for one in ours if carries(one.pid, items))
    _collect_orphans(procs)


def _is_body(one: Proc) -> bool:
    """Whether it is a dead child of ours that no `run_process` waits for."""
    return one.ppid == os.getpid() and not one.alive and one.pid not in own_children


def _collect_orphans(procs: Mapping[int, Proc]) -> None:
    """Collects the exit status of dead orphans that this process has adopted, and of no other child.

    Who started a child waits for its status, and must not lose it. But a child that is neither in our
    session nor the leader of its own cannot have been started by us; nor can a known orphan.
    """
    my_session, now = os.getsid(0), time.monotonic()
    for gone in (_adopted | _dead_since.keys()) - {one.identity for one in procs.values()}:
        _adopted.discard(gone)
        _dead_since.pop(gone, None)
    bodies = [one for one in procs.values() if _is_body(one)]
    for one in bodies:
        is_orphan = one.sid not in (my_session, one.pid) or one.identity in _adopted
        waited = now - _dead_since.setdefault(one.identity, now)
        # Nobody starts so many servers that all die at once.
        if is_orphan or waited >= STATUS_SECONDS or len(bodies) > GROWTH:
            with suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)


# A tree.


class Tree:
    """The processes that belong together, followed from one look at /proc to the next."""

    def __init__(
        self,
        is_seed: Callable[[Proc], bool],
        spare: Callable[[], Collection[int]],
        group: int | None = None,
    ) -> None:
        """`group` is a process group whose number is held by a leader that nobody has collected yet."""
        self.survivors: list[Survivor] = []
        self._is_seed = is_seed
        self._spare = spare
        self._group = group
        self._group_is_whole = False
        self._above: set[int] = set()
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
        asked: set[tuple[int, int]] = set()
        most = None
        while (alive := self._look()) and (left := deadline - time.monotonic()) > 0:
            # What a living member starts from now on may be its way to clean up. It is not asked.
            parents = {one.pid for one in alive} if asked else set()
            fresh = [one for one in alive if one.identity not in asked and one.ppid not in parents]
            self._signal(fresh, signal.SIGTERM)
            self._signal((one for one in alive if one.state == "T"), signal.SIGCONT)
            asked.update(one.identity for one in fresh)
            most = most or len(alive) + GROWTH
            if len(alive) > most:
                return
            yield min(pause, left)
            pause = min(2 * pause, _SLOWEST)

    def _kill(self) -> Generator[float, None, None]:
        deadline, pause = time.monotonic() + KILL_SECONDS, _QUICKEST
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
            self.survivors = [Survivor(one.pid, _command(one.pid)) for one in self._look()]
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
        spared = self._spare()
        return bool(spared) and one.pid in _below(_all_procs(), spared)

    def _look(self) -> list[Proc]:
        """The members that are alive now."""
        procs = _all_procs()
        self._above = _ancestors(procs, os.getpid())
        untouchable = self._above | _below(procs, self._spare())
        self._group_is_whole = all(procs[pid].pgid != self._group for pid in untouchable & procs.keys())
        known = [one.pid for one in procs.values() if one.identity in self._members]
        found = _below(procs, known, untouchable)
        # Reading the environment of those that are not yet found is the dear part of a look.
        rest = [one for one in procs.values() if one.pid not in found and self._is_seed(one)]
        found |= _below(procs, [one.pid for one in rest], untouchable)
        members = [procs[pid] for pid in found]
        self._members.update(one.identity for one in members)
        _adopted.update(one.identity for one in members if self._is_orphan(one))
        others = own_children - {self._group}
        bodies = {one.identity for one in procs.values() if _is_body(one) and one.sid not in others}
        bodies -= self._members
        self._fresh_bodies = bodies - self._bodies if self._bodies is not None else set()
        self._bodies = bodies
        _collect_orphans(procs)
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


def _ancestors(procs: Mapping[int, Proc], pid: int) -> set[int]:
    """The process itself and all above it."""
    found: set[int] = set()
    while pid in procs and pid not in found:
        found.add(pid)
        pid = procs[pid].ppid
    return found


def _below(procs: Mapping[int, Proc], roots: Iterable[int], without: Collection[int] = frozenset()) -> set[int]:
    """The roots and all below them, except `without` and what is reached through these alone."""
    children: dict[int, list[int]] = defaultdict(list)
    for one in procs.values():
        children[one.ppid].append(one.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in procs and pid not in found and pid not in without:
            found.add(pid)
            waiting += children[pid]
    return found
