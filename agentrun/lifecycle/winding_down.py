"""Ending a run that was told to stop: the facts about its operations first, then its end.

The executor does this after its agent has let go of everything, and so does whoever takes over from a dead one.
"""

from __future__ import annotations

from agentrun.records.lease import Lease
from agentrun.records.operation import WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store.closing import finish
from agentrun.store.identity import this_actor
from agentrun.store.runs import RunDir
from agentrun.store.writer import Writer

E = EventType
LOST = "executor lost"


def wind_down(writer: Writer, lease: Lease, run_dir: RunDir, *, executing_ms: int = 0) -> Run:
    """Settles what is open and ends the run as its first intent says. Nothing of it may be alive any more.

    Raises FencedOut.
    """
    run = run_dir.check(lease, writer)
    for operation in run.open_operations:
        _settle(writer, lease, run_dir, operation)
    end = run.ending or RunStatus.FAILED
    return finish(writer, lease, run_dir, end, executing_ms=executing_ms)


def _settle(writer: Writer, lease: Lease, run_dir: RunDir, operation: Operation) -> None:
    if operation.status is OperationStatus.PENDING:
        payload = {
            "operationId": operation.operation_id,
            "status": OperationStatus.SKIPPED.value,
            "error": "the run was stopped before it started",
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
