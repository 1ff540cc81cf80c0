"""What the tools of a run left running: found by its marker, and ended."""

from __future__ import annotations

from collections.abc import Callable

from agentrun.commands.place import Place
from agentrun.store.runs import RunDir

# Seconds from SIGTERM to SIGKILL for processes that a tool left behind: the tool itself has had its own grace.
LEFTOVER_GRACE = 1.0
# What a detached executor is started as. It may have been started by a tool, and is never ended as a part of that:
# it drives another run, which is stopped by its own flow if it is a child of the tool's.
DETACHED = "agentrun.cli.detached"


def end_marked_leftovers(place: Place, run_dir: RunDir) -> list[str]:
    """Ends what the tools of a run left running; returns the names of what could not be ended."""
    from agentrun.adapters.process import end_marked_now

    grace = 0.0 if run_dir.load().force else LEFTOVER_GRACE
    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    survivors = end_marked_now(marker(place, run_dir.session_id, run_dir.run_id), grace=grace, spare=spare)
    return [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]


async def end_leftovers_here(place: Place, run_dir: RunDir, is_forced: Callable[[], bool]) -> list[str]:
    """As `end_marked_leftovers`, from the executor itself, which also finds what has dropped its environment."""
    from agentrun.adapters.process import end_descendants

    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    survivors = await end_descendants(grace=LEFTOVER_GRACE, spare=spare, is_forced=is_forced)
    names = [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]
    return names + await end_marked_here(place, run_dir, is_forced)


async def end_marked_here(place: Place, run_dir: RunDir, is_forced: Callable[[], bool]) -> list[str]:
    """The same for a process that has other children as well: what carries the run's marker, and all below it."""
    from agentrun.adapters.process import end_marked

    spare = other_executors(place, run_dir.session_id, run_dir.run_id)
    marked = marker(place, run_dir.session_id, run_dir.run_id)
    survivors = await end_marked(marked, grace=LEFTOVER_GRACE, spare=spare, is_forced=is_forced)
    return [f"{survivor.command} (pid {survivor.pid})" for survivor in survivors]


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
