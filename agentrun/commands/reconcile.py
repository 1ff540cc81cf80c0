"""What nobody knows about a run's operations, and the user's word on it."""

from __future__ import annotations

from agentrun.commands.place import Place
from agentrun.errors import Conflict, NotFound
from agentrun.lifecycle.settlement import settle_doubtful
from agentrun.records.codec import Doc
from agentrun.records.operation import Operation, fold_operations
from agentrun.states import EventType, OperationStatus
from agentrun.store.identity import this_actor
from agentrun.store.redo import writing
from agentrun.store.resources import Resources
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

BY_THE_USER = "the user's word"


def unresolved(run_dir: RunDir) -> tuple[Operation, ...]:
    """The operations of which nobody knows what they did, durable as they are told."""
    run = run_dir.load()
    run_dir.events.sync_for_reading()
    return run.unresolved_operations


def ask(place: Place, session: SessionDir, run_dir: RunDir) -> None:
    """Asks the probes, and the notes of fenced executors, about what is unresolved, and records what they know.

    Of a run that is over that is a late result: it changes its operation and nothing else. Raises StorageFailed.
    """
    from agentrun.commands.recovery import find_out

    doubtful = run_dir.load().unresolved_operations
    settle_doubtful(session, run_dir, doubtful, find_out(place, run_dir, doubtful))


def reconcile(
    session: SessionDir, run_dir: RunDir, operation_id: str, status: OperationStatus, note: str | None
) -> Operation:
    """Records how an unresolved operation ended, as the user says. Starts nothing.

    The same word again changes nothing. Raises NotFound, and Conflict if nothing is open about the operation.
    """
    with writing(session) as writer:
        run = run_dir.current(writer)
        operation = _named(run_dir, operation_id)
        if operation.settled and operation.status is status:
            run_dir.events.sync()
            return operation
        if not operation.is_unresolved:
            raise _nothing_open(run_dir, operation)
        payload: Doc = {
            "operationId": operation_id,
            "status": status.value,
            "evidence": BY_THE_USER,
            "mayHaveEffects": False,
            "actor": this_actor(),
        }
        # Who watches for runs that can go on again hears of it.
        session.activity.note(session.session_id)
        payload |= {"note": note} if note else {}
        run_dir.append_as_anyone(writer, EventType.OPERATION_RECONCILED, payload)
        run_dir.write_snapshot(writer)
        Resources(session).release_settled(writer, run_dir)
        assert run.run_id == run_dir.run_id
        return _named(run_dir, operation_id)


def _named(run_dir: RunDir, operation_id: str) -> Operation:
    for operation in fold_operations(run_dir.all_events()):
        if operation.operation_id == operation_id:
            return operation
    raise NotFound(
        f"there is no operation {operation_id} in {run_dir.name}",
        hint=f"see what is unresolved: agentrun reconcile {run_dir.name}",
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )


def _nothing_open(run_dir: RunDir, operation: Operation) -> Conflict:
    if operation.is_open:
        why = "is not over, as far as is known"
        hint = f"if its executor is gone: agentrun recover; else wait for it: agentrun show -f {run_dir.name}"
    else:
        why = f"is {operation.status.value}, which stands"
        hint = f"see what is unresolved: agentrun reconcile {run_dir.name}"
    return Conflict(
        f"{operation.operation_id} of {run_dir.name} {why}",
        hint=hint,
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )
