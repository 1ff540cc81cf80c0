"""What the tools of a run left running: found by its marker, and ended."""

from __future__ import annotations

import os

from agentrun.commands.execution import DETACHED, patience_of
from agentrun.commands.place import Place
from agentrun.records.lease import Owner
from agentrun.store import layout
from agentrun.store.identity import is_of_here, number_here
from agentrun.store.runs import RunDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentrun.config import Patience

# Seconds from SIGTERM to SIGKILL for processes that a tool left behind: the tool itself has had its own grace.
LONGEST_LEFTOVER_GRACE = 1.0
# Seconds that a process has to go away after SIGKILL, and its locks with it.
KILL_PATIENCE = 5.0


def end_marked_leftovers(place: Place, run_dir: RunDir, patience: Patience) -> list[str]:
    """Ends what the tools of a run left running; returns the names of what could not be ended."""
    from agentrun.adapters.process import end_marked_now

    grace = 0.0 if run_dir.load().force else _grace(patience)
    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    marked = marker(place, run_dir.session_id, run_dir.run_id)
    inside = _inside(run_dir)
    survivors = end_marked_now(marked, grace=grace, kill=patience.kill_timeout, spare=spare, inside=inside)
    return [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]


async def end_leftovers_here(
    place: Place, run_dir: RunDir, patience: Patience, is_forced: Callable[[], bool]
) -> list[str]:
    """As `end_marked_leftovers`, from the executor itself, which also finds what has dropped its environment."""
    names = await end_descendants_here(place, run_dir, patience, is_forced)
    return names + await end_marked_here(place, run_dir, patience, is_forced)


async def end_descendants_here(
    place: Place, run_dir: RunDir, patience: Patience, is_forced: Callable[[], bool]
) -> list[str]:
    """Ends what descends from this process, an executor of nothing else. What carries the marker and does not descend

    from it may be of another executor, which has taken the run over.
    """
    from agentrun.adapters.process import end_descendants

    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    grace, kill = _grace(patience), patience.kill_timeout
    survivors = await end_descendants(grace=grace, kill=kill, spare=spare, is_forced=is_forced)
    return [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]


async def end_marked_here(
    place: Place, run_dir: RunDir, patience: Patience, is_forced: Callable[[], bool]
) -> list[str]:
    """The same for a process that has other children as well: what carries the run's marker, and all below it."""
    from agentrun.adapters.process import end_marked

    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    marked = marker(place, run_dir.session_id, run_dir.run_id)
    grace, kill = _grace(patience), patience.kill_timeout
    inside = _inside(run_dir)
    survivors = await end_marked(marked, grace=grace, kill=kill, spare=spare, is_forced=is_forced, inside=inside)
    return [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]


async def end_marked_if_ours(place: Place, run_dir: RunDir, patience: Patience) -> list[str] | None:
    """As `end_marked_here`, for such a process that leaves its run in the middle.

    Not once another executor has the run, and None then: what carries the marker may be what that one has begun.
    """
    lease = run_dir.lease()
    if lease is not None and not (lease.owner.pid == os.getpid() and is_of_here(lease.owner)):
        return None
    return await end_marked_here(place, run_dir, patience, lambda: False)


def end_executor(place: Place, run_dir: RunDir, pid: int, owner: Owner) -> bool:
    """Ends an executor of the run that does not respond, and what it has begun; whether it is gone.

    `pid` is the number that the process of `owner` has here.
    """
    from agentrun.adapters.process import end_executor as end

    assert owner.start_time is not None  # by that it was found
    grace = 0.0 if run_dir.load().force else _grace(patience_of(place, run_dir))
    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    marked = marker(place, run_dir.session_id, run_dir.run_id)
    return end(pid, owner.start_time, marked, grace=grace, kill=KILL_PATIENCE, program="agentrun", spare=spare)


def end_fenced(place: Place, run_dir: RunDir) -> list[str]:
    """Ends the executor that was fenced out and has its lock still, if it is to be seen here; its name if it stays."""
    fenced = run_dir.load().fenced
    owner = Owner.from_doc(fenced) if fenced else None
    pid = number_here(owner) if owner else None
    if owner is None or pid is None or end_executor(place, run_dir, pid, owner):
        return []
    return [f"{owner} (here: pid {pid})"]


def _grace(patience: Patience) -> float:
    return min(patience.grace, LONGEST_LEFTOVER_GRACE)


def other_executors(place: Place, session_id: str, run_id: str) -> Callable[[], set[int]]:
    """Finds the executors of other runs, which are not ended with this one's tools wherever they were started."""
    from agentrun.adapters.process import others_running

    return lambda: others_running(DETACHED, marker(place, session_id, run_id))


def marker(place: Place, session_id: str, run_id: str) -> dict[str, str]:
    """The variables that tell the processes of a run's tools from all others."""
    return {
        "AGENTRUN_ROOT": place.tree.root,
        "AGENTRUN_ACCOUNT": place.tree.account,
        "AGENTRUN_SESSION": session_id,
        "AGENTRUN_RUN": run_id,
    }


def _inside(run_dir: RunDir) -> str:
    """Where the run lies in its tree."""
    parts = layout.ACCOUNTS, run_dir.account, layout.SESSIONS, run_dir.session_id, layout.RUNS, run_dir.run_id
    return "/".join(parts)
