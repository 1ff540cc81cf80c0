"""Ending a run that was told to stop: the facts about its operations first, then its end.

The executor does this after its agent has let go of everything, and so does whoever takes over from a dead one.
"""

from __future__ import annotations

import os

from agentrun.lifecycle.leaving import let_go
from agentrun.records.lease import Lease
from agentrun.records.operation import WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import inbox
from agentrun.store.closing import finish
from agentrun.store.identity import this_actor
from agentrun.store.liveness import take_to_drive
from agentrun.store.locks import has_liveness
from agentrun.store.runs import RunDir
from agentrun.store.sight import out_of_sight, words_of
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

E = EventType
LOST = "executor lost"
# The actor of a stop that nobody asked for.
DEADLINE = "deadline"
# Why a lease is given back of a run that stays as it is.
UNSEEN = "something of it may be alive elsewhere"
# The lease, in seconds, of whoever winds down a run that it does not execute: long enough for any grace period.
WIND_DOWN_LEASE = 60.0


def wind_down(writer: Writer, lease: Lease, run_dir: RunDir, *, executing_ms: int = 0) -> Run:
    """Settles what is open and ends the run as its first intent says. Nothing of it may be alive any more.

    Raises FencedOut.
    """
    run = run_dir.check(lease, writer)
    for operation in run.open_operations:
        _settle(writer, lease, run_dir, operation)
    end = run.ending or RunStatus.FAILED
    return finish(writer, lease, run_dir, end, executing_ms=executing_ms)


def name_survivors(writer: Writer, lease: Lease, run_dir: RunDir, names: Sequence[str]) -> None:
    """Records what of a `cancelling` run cannot be ended, unless just that is recorded. Raises FencedOut."""
    if run_dir.check(lease, writer).survivors != tuple(names):
        run_dir.append(lease, writer, E.RUN_SURVIVORS_FOUND, {"survivors": list(names)}, durable=True)
        run_dir.write_snapshot(writer)


def unseen(run_dir: RunDir, run: Run) -> list[str]:
    """What may be alive of the run where it cannot be seen from here, as `survivors` name it."""
    return [words_of(each) for each in out_of_sight(run_dir, run)]


def leave_unseen(writer: Writer, lease: Lease, run_dir: RunDir, *, executing_ms: int | None = None) -> list[str]:
    """Leaves a run `cancelling` if something of it may be alive where it cannot be seen from here; returns what.

    Of what can be seen nothing may be alive any more. `executing_ms` is what was used that no event tells of; None is
    what the lease says. Raises FencedOut.
    """
    run = run_dir.check(lease, writer)
    names = unseen(run_dir, run)
    if names:
        name_survivors(writer, lease, run_dir, names)
        spent = run_dir.unrecorded_ms(run) if executing_ms is None else executing_ms
        let_go(writer, lease, run_dir, UNSEEN, executing_ms=spent)
    return names


def nothing_else_here(run_dir: RunDir, run: Run) -> list[str]:
    """What is `unseen` of a run that was let go for that alone: nobody here can do any more for it; else nothing."""
    if run.status is not RunStatus.CANCELLING or run.lease_owner is not None:
        return []
    names = unseen(run_dir, run)
    # What is not named yet has to be: `show` says by that how to go on.
    return names if tuple(names) == run.survivors else []


def how_to_end(run: Run) -> str:
    """The hint for a run that stays as it is for what is `unseen`."""
    name = f"{run.session_id}/{run.run_id}"
    return (
        f"cancel it where that can be seen: on the machine itself, or in that container\n"
        f"if that container is gone, say so: agentrun cancel {name} --gone"
    )


def how_to_go_on(run: Run, survivors: Sequence[str], command: str) -> str:
    """The hint where `survivors` of a run could not be ended; `command` is what is to be typed once they have."""
    runs = run.runs_among(survivors)
    lines = [f"end the run that it began: agentrun cancel {each}" for each in runs]
    lines += ["end it by hand"] if len(runs) < len(survivors) else []
    return "\n".join([*lines[:-1], f"{lines[-1]}, then: agentrun {command}"])


def end_overdue(writer: Writer, run_dir: RunDir) -> bool:
    """Ends a run that waits on disk for an answer whose time is over; whether it has.

    Nothing of such a run is executed, so nothing has to be stopped. A run with an executor is ended by that.
    """
    view = run_dir.view()
    if not (view.overdue and view.status is RunStatus.WAITING_INPUT and view.executor == "none"):
        return False
    liveness = take_to_drive(run_dir, view.run)
    if liveness is None:
        return False
    try:
        actor = this_actor() | {"user": DEADLINE}
        inbox.request_stop(
            writer, run_dir, actor=actor, reason="no answer came in time", intent="timeout", via="answer_timeout"
        )
        fenced = None if has_liveness(run_dir.directory, liveness) else view.run.fenced
        lease = run_dir.take_over(writer, lease_seconds=WIND_DOWN_LEASE, fenced=fenced)
        return not leave_unseen(writer, lease, run_dir) and wind_down(writer, lease, run_dir).is_over
    finally:
        os.close(liveness)


def _settle(writer: Writer, lease: Lease, run_dir: RunDir, operation: Operation) -> None:
    if operation.status is OperationStatus.PENDING:
        # Pending after an attempt: that one failed for now, and the next one will not be made.
        started = operation.attempt > 0
        payload = {
            "operationId": operation.operation_id,
            "status": (OperationStatus.CANCELLED if started else OperationStatus.SKIPPED).value,
            "error": f"the run was stopped before it {'was tried again' if started else 'started'}",
            "mayHaveEffects": False,
            "attempt": operation.attempt,
        }
        run_dir.append(lease, writer, E.TOOL_FINISHED, payload)
        return
    # It was under way when its executor went. What only looks has done nothing; of a write nobody knows.
    status = OperationStatus.UNKNOWN if operation.effect == WRITE else OperationStatus.CANCELLED
    payload = {
        "operationId": operation.operation_id,
        "status": status.value,
        "evidence": LOST,
        "error": LOST,
        "mayHaveEffects": operation.effect == WRITE,
        "actor": this_actor(),
    }
    run_dir.append_as_anyone(writer, E.OPERATION_RECONCILED, payload)
