"""Winding down a run that is to stop and whose executor is gone: it is taken over, what it left is ended, then the run.

Few commands meet such a run, and those are typed all day that could: this is loaded where one is met.
"""

from __future__ import annotations

import os

from agentrun.commands.asking import stop_outside
from agentrun.commands.execution import patience_of
from agentrun.commands.leftovers import end_fenced, end_marked_leftovers
from agentrun.commands.place import Place
from agentrun.errors import NotEnded
from agentrun.lifecycle.recovery import begin
from agentrun.lifecycle.winding_down import (
    LOST,
    WIND_DOWN_LEASE,
    how_to_end,
    how_to_go_on,
    leave_unseen,
    name_survivors,
    nothing_else_here,
    unseen,
    wind_down,
)
from agentrun.named import NamedTuple
from agentrun.records.lease import Lease
from agentrun.records.run import Run
from agentrun.store.liveness import InHand, take_to_drive
from agentrun.store.locks import has_liveness
from agentrun.store.redo import stopping
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.sight import sees_processes
from agentrun.store.writer import Writer


class Taken(NamedTuple):
    """A run that was taken over from an executor that is gone: its lease, and the lock to let go at the end."""

    lease: Lease
    liveness: int
    gone: bool = False


def take_over(writer: Writer, run_dir: RunDir, run: Run, *, gone: bool = False) -> Taken | None:
    """Claims `run`, which nobody drives; None if somebody else is at it by now.

    `gone` is the user's word that nothing of it is alive where that cannot be seen from here. Raises NotEnded if what
    is left of it can only be seen elsewhere.
    """
    if not sees_processes():
        why = ": what it left running cannot be seen from here, where /proc is missing or shows other processes"
        raise _not_ended(run_dir, why, f"where /proc shows them: agentrun cancel {run_dir.name}")
    names = [] if gone else nothing_else_here(run_dir, run)
    if names:
        raise _not_ended(run_dir, f" because of {', '.join(names)}", how_to_end(run))
    liveness = take_to_drive(run_dir, run)
    if liveness is None:
        return None
    with InHand(liveness) as hand:
        fenced = None if has_liveness(run_dir.directory, liveness) else run.fenced
        lease = begin(writer, run_dir, lease_seconds=WIND_DOWN_LEASE, reason=LOST, fenced=fenced)
        hand.keep()
    return Taken(lease, liveness, gone)


def wind_down_taken(place: Place, session: SessionDir, run_dir: RunDir, taken: Taken) -> None:
    """Ends what the dead executor left running, then the run.

    What cannot be ended keeps it in `cancelling`, is named there, and raises NotEnded.
    """
    try:
        survivors = end_leftovers(place, run_dir)
        if not survivors and (taken.gone or not unseen(run_dir, run_dir.load())):
            stop_outside(place, session, run_dir, taken.lease)
        _end_run(session, run_dir, taken, survivors)
    finally:
        os.close(taken.liveness)


def _end_run(session: SessionDir, run_dir: RunDir, taken: Taken, survivors: list[str]) -> None:
    lease = taken.lease
    with stopping(session) as writer:
        if survivors:
            out_of_here = [] if taken.gone else unseen(run_dir, run_dir.check(lease, writer))
            name_survivors(writer, lease, run_dir, [*survivors, *out_of_here])
            run_dir.end_lease(writer)
            hint = how_to_go_on(run_dir.current(writer), survivors, f"cancel {run_dir.name}")
            raise _not_ended(run_dir, f": {', '.join(survivors)} cannot be ended", hint)
        if not taken.gone and (names := leave_unseen(writer, lease, run_dir)):
            raise _not_ended(run_dir, f" because of {', '.join(names)}", how_to_end(run_dir.current(writer)))
        spent = run_dir.unrecorded_ms(run_dir.current(writer))
        wind_down(writer, lease, run_dir, executing_ms=spent)


def _not_ended(run_dir: RunDir, why: str, hint: str) -> NotEnded:
    said = f"{run_dir.name} stays cancelling{why}"
    return NotEnded(said, hint=hint, session_id=run_dir.session_id, run_id=run_dir.run_id)


def end_leftovers(place: Place, run_dir: RunDir) -> list[str]:
    """Ends the runs that it began, by their own flow, then what its tools left; the names of what is still alive."""
    from agentrun.commands.children import stop_children

    alive = [*stop_children(place, run_dir), *end_fenced(place, run_dir)]
    alive += end_marked_leftovers(place, run_dir, patience_of(place, run_dir))
    # Once more: a process that was about to begin a child may have done so before it was ended itself.
    return list(dict.fromkeys([*alive, *stop_children(place, run_dir)]))
