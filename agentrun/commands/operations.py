"""Stopping one operation of a run that goes on."""

from __future__ import annotations

from agentrun.commands.control import Acceptance, settle
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.errors import NotFound, OperationOver
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.operation import Operation, fold_operations
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import OperationStatus
from agentrun.store import inbox
from agentrun.store.identity import this_actor
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir

# What an operation is that did what a cancel asked for.
STOPPED = frozenset({OperationStatus.CANCELLED, OperationStatus.SKIPPED})


class OperationView(NamedTuple):
    """An operation as it stands in its run. `acceptance` is there if the run has to be driven on because of it."""

    view: RunView
    operation: Operation
    acceptance: Acceptance | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether it is over as it was wanted."""
        return self.operation.status in STOPPED

    def to_doc(self) -> Doc:
        """For scripts."""
        run = self.view.run
        return {
            "sessionId": run.session_id,
            "runId": run.run_id,
            "status": self.view.status.value,
            "executor": self.view.executor,
            "operation": self.operation.to_doc(),
        }


def cancel_operation(
    place: Place, target: Target, operation_id: str, reason: str, *, force: bool = False
) -> OperationView:
    """Stores that one operation is to stop; the run goes on without it, and its agent is told.

    A call that waits for an approval is denied: nobody else can settle it. Raises NotFound for an operation that the
    run does not have, OperationOver for one that ended otherwise.
    """
    run_dir = target.run()
    with writing(target.session) as writer:
        run = run_dir.current(writer)
        is_open = any(each.operation_id == operation_id for each in run.open_operations)
        asked_about = (run.waiting_for or {}).get("operationId") == operation_id
        if is_open and not asked_about:
            inbox.request_operation_stop(
                writer, run_dir, operation_id, actor=this_actor(), reason=reason, via="command", force=force
            )
            run_dir.write_snapshot(writer)
    acceptance = None
    if asked_about:
        named = Target(target.session, run_dir.run_id)
        acceptance = settle(place, named, operation_id, approved=False, note=reason)
    found = operation_view(run_dir, operation_id)
    if not is_open and not found.is_stopped:
        raise over(run, found.operation)
    return found._replace(acceptance=acceptance)


def operation_view(run_dir: RunDir, operation_id: str) -> OperationView:
    """The operation as the run's record has it now, durable as it is told. Raises NotFound."""
    view = run_dir.view()
    for operation in fold_operations(run_dir.lasting_events()):
        if operation.operation_id == operation_id:
            return OperationView(view, operation)
    raise NotFound(
        f"{run_dir.name} has no operation {operation_id[:64]!r}",
        hint=f"see those it has: agentrun show {run_dir.name}",
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )


def over(run: Run, operation: Operation) -> OperationOver:
    """Says how an operation ended that can no more be cancelled."""
    name = f"{run.session_id}/{run.run_id}"
    return OperationOver(
        f"{operation.operation_id} of {name} ({operation.name}) is over: {operation.status}",
        hint=f"see what it did: agentrun show {name}",
        session_id=run.session_id,
        run_id=run.run_id,
    )
