"""Orphans of tools, which become children of the executor: told from those it started, and collected when dead."""

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from agentrun.adapters.process.marks import Mark, carries
from agentrun.adapters.process.procfs import Proc, all_procs, proc_file

CROWD = 64
"""Nobody starts so many servers that all die at once: more dead children than this are orphans."""

STATUS_SECONDS = 1.0
"""A dead child of unknown origin whose status nobody wanted for so long is an orphan that was never seen
alive. Left alone, thousands of them could use up the machine's process numbers."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # prctl(2)

own_children: set[int] = set()
"""Pids whose exit status someone in this process waits for: nobody else may collect it."""

_adopted: set[tuple[int, int]] = set()
"""Orphans, by pid and start time: they were seen with another parent, or were left by a tool that ended.
Once they are our children nothing tells them from those we started."""

_dead_since: dict[tuple[int, int], float] = {}
"""Dead children of unknown origin, and when they were first seen so."""


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


def _is_subreaper() -> bool:
    found = ctypes.c_int()
    return ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0) == 0 and found.value != 0


def adopt(orphans: Iterable[Proc]) -> None:
    """Notes that these, once they are our children, were not started by us."""
    _adopted.update(one.identity for one in orphans)


def settle(mark: Mark) -> None:
    """When a tool has ended: takes note of what it left to us, and collects what is dead of that."""
    if not _has_foreign_children():
        # As after most calls; a look at every process of the machine would take longer than a short tool does.
        return
    procs, me = all_procs(), os.getpid()
    ours = [one for one in procs.values() if one.ppid == me and one.pid not in own_children]
    adopt(one for one in ours if carries(one.pid, mark))
    collect_orphans(procs)


def _has_foreign_children() -> bool:
    """Whether this process has children that it did not start, or cannot tell (proc(5), `children`)."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    listed = (proc_file(os.getpid(), f"task/{thread}/children") for thread in os.listdir("/proc/self/task"))
    children = {int(pid) for line in listed for pid in line.split()}
    # A kernel that does not list them lists none, though there are some.
    return not children or not children <= own_children


def is_body(one: Proc) -> bool:
    """Whether it is a dead child of ours that no `run_process` waits for."""
    return not one.alive and one.ppid == os.getpid() and one.pid not in own_children


def collect_orphans(procs: Mapping[int, Proc]) -> None:
    """Collects the exit status of dead orphans that this process has adopted, and of no other child.

    Who started a child waits for its status, and must not lose it. But a child that is neither in our
    session nor the leader of its own cannot have been started by us; nor can a known orphan. Where no
    orphans come to, in somebody's own program, a child of unknown origin is that program's, however long
    it lets it lie.
    """
    my_session, now = os.getsid(0), time.monotonic()
    for gone in (_adopted | _dead_since.keys()) - {one.identity for one in procs.values()}:
        _adopted.discard(gone)
        _dead_since.pop(gone, None)
    bodies = [one for one in procs.values() if is_body(one)]
    gets_orphans = bool(bodies) and _is_subreaper()
    for one in bodies:
        is_orphan = one.sid not in (my_session, one.pid) or one.identity in _adopted
        waited = now - _dead_since.setdefault(one.identity, now)
        is_unwanted = gets_orphans and (waited >= STATUS_SECONDS or len(bodies) > CROWD)
        if is_orphan or is_unwanted:
            with suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)
