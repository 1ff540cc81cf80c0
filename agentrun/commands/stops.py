"""Stopping a run from outside: the intent, and the winding down where no executor is left to do it."""

from __future__ import annotations

import os

from agentrun.commands.asking import stop_outside
from agentrun.commands.execution import patience_of
from agentrun.commands.leftovers import end_marked_leftovers
from agentrun.commands.place import Place
from agentrun.errors import NotEnded
from agentrun.lifecycle.recovery import begin
from agentrun.lifecycle.winding_down import LOST, WIND_DOWN_LEASE, name_survivors, wind_down
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.lease import Lease
from agentrun.states import RunStatus
from agentrun.store import inbox
from agentrun.store.liveness import InHand, take_to_drive
from agentrun.store.locks import has_liveness
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


class Stop(NamedTuple):
    """An intent to stop a run: who, why, and the words of its event. `force` leaves no grace period."""

    actor: Doc
    reason: str
    intent: str
    via: str
    force: bool = False


def stop(place: Place, session: SessionDir, run_dir: RunDir, asked: Stop) -> bool:
    """Stores the intent, and winds the run down here if its executor is gone. False if it was over before.

    Raises NotEnded if something of it cannot be ended.
    """
    with writing(session) as writer:
        run = run_dir.current(writer)
        if run.is_over:
            run_dir.events.sync()
            return False
        run = inbox.request_stop(writer, run_dir, **asked._asdict())
        taken = None if run.is_over else take_over_if_lost(writer, run_dir)
    if taken is not None:
        wind_down_lost(place, session, run_dir, taken)
    return True


class Taken(NamedTuple):
    """A run that was taken over from an executor that is gone: its lease, and the lock to let go at the end."""

    lease: Lease
    liveness: int


def end_what_was_stopped(place: Place, session: SessionDir) -> None:
    """Winds down the active run if it was told to stop and nobody is left who would do it: whoever comes next does."""
    run_id = session.active()
    if run_id is None:
        return
    view = session.run(run_id).view()
    is_told = view.stop_asked or view.status is RunStatus.CANCELLING
    if not is_told or view.executor not in ("lost", "none"):
        return
    run_dir = session.run(run_id)
    with writing(session) as writer:
        is_stopping = run_dir.current(writer).status is RunStatus.CANCELLING
        taken = take_over_if_lost(writer, run_dir) if is_stopping else None
    if taken is not None:
        wind_down_lost(place, session, run_dir, taken)


def take_over_if_lost(writer: Writer, run_dir: RunDir) -> Taken | None:
    """Claims a run that is to stop and whose executor is gone; None if it is not gone, or somebody else is at it."""
    run = run_dir.current(writer)
    if run_dir.is_driven(run):
        return None
    liveness = take_to_drive(run_dir, run)
    if liveness is None:
        return None
    with InHand(liveness) as hand:
        fenced = None if has_liveness(run_dir.directory, liveness) else run.fenced
        lease = begin(writer, run_dir, lease_seconds=WIND_DOWN_LEASE, reason=LOST, fenced=fenced)
        hand.keep()
    return Taken(lease, liveness)


def wind_down_lost(place: Place, session: SessionDir, run_dir: RunDir, taken: Taken) -> None:
    """Ends what the dead executor left running, then the run.

    What cannot be ended keeps it in `cancelling`, is named there, and raises NotEnded.
    """
    try:
        survivors = end_leftovers(place, run_dir)
        if not survivors:
            stop_outside(place, session, run_dir, taken.lease)
        _end_run(session, run_dir, taken.lease, survivors)
    finally:
        os.close(taken.liveness)


def _end_run(session: SessionDir, run_dir: RunDir, lease: Lease, survivors: list[str]) -> None:
    with writing(session) as writer:
        if survivors:
            name_survivors(writer, lease, run_dir, survivors)
            run_dir.end_lease(writer)
            raise NotEnded(
                f"{run_dir.name} stays cancelling: {', '.join(survivors)} cannot be ended",
                hint=f"end it by hand, then: agentrun cancel {run_dir.name}",
                session_id=run_dir.session_id,
                run_id=run_dir.run_id,
            )
        spent = run_dir.unrecorded_ms(run_dir.current(writer))
        wind_down(writer, lease, run_dir, executing_ms=spent)


def end_leftovers(place: Place, run_dir: RunDir) -> list[str]:
    """Ends the runs that it began, by their own flow, then what its tools left; the names of what is still alive."""
    from agentrun.commands.children import stop_children

    alive = [*stop_children(place, run_dir), *end_marked_leftovers(place, run_dir, patience_of(run_dir))]
    # Once more: a process that was about to begin a child may have done so before it was ended itself.
    return list(dict.fromkeys([*alive, *stop_children(place, run_dir)]))
