"""What /proc says of the processes of this machine, and signals that reach the process that was meant (proc(5))."""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

_READ_BYTES = 64 * 1024


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
    content = proc_file(pid, "stat")
    if not content:
        return None
    # The name before it is free text, with spaces and parentheses if its owner likes.
    fields = content[content.rindex(b")") + 2 :].split()
    state, ppid, pgid, sid = fields[:4]
    return Proc(pid, int(fields[19]), int(ppid), int(pgid), int(sid), state.decode(), int(fields[17]))


def session_of(leader: int) -> list[Proc]:
    """The leader of a session, if it is alive, and what descends from it in that session, parents first.

    Looks at nothing else (proc(5), `children`), and may miss what is being started or ended meanwhile.
    """
    found: list[Proc] = []
    waiting = [leader]
    while waiting:
        pid = waiting.pop()
        one = read_proc(pid)
        if one is None or not one.alive or one.sid != leader:
            continue
        found.append(one)
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, proc_file(pid, f"task/{thread}/children").split())
    return found


def clock_ticks() -> int:
    """Now, as `Proc.start` counts."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def proc_file(pid: int, name: str) -> bytes:
    """What /proc says under `name` of a process; nothing of one that is gone or another user's."""
    try:
        # Bare calls: this is done for every process of the machine, while somebody waits for a stop.
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # gone, or of another user: not ours to end
    try:
        content = b""
        while part := os.read(descriptor, _READ_BYTES):
            content += part
    except (ProcessLookupError, PermissionError):
        return b""
    finally:
        os.close(descriptor)
    return content


def pids() -> list[int]:
    """Every process."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def all_procs() -> dict[int, Proc]:
    """Every process, by its pid."""
    return {pid: proc for pid in pids() if (proc := read_proc(pid))}


def command_of(pid: int) -> str:
    """What was started, on one line; the name alone of what shows no more."""
    line = proc_file(pid, "cmdline").replace(b"\0", b" ").strip() or proc_file(pid, "comm").strip()
    return line[:200].decode(errors="backslashreplace")


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


def ancestors(procs: Mapping[int, Proc], pid: int) -> set[int]:
    """The process itself and all above it."""
    found: set[int] = set()
    while pid in procs and pid not in found:
        found.add(pid)
        pid = procs[pid].ppid
    return found


def below(procs: Mapping[int, Proc], roots: Iterable[int], without: Collection[int] = frozenset()) -> set[int]:
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
