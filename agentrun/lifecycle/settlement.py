"""What becomes known of an operation after its executor could not see it end: a cancel's, a probe's or a note's word.

It is added to its own operation and changes nothing else: not the status of the run, not its report. What is certain
already is not overruled, whatever comes later.
"""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.operation import WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus
from agentrun.store.identity import this_actor
from agentrun.store.redo import writing
from agentrun.store.resources import Resources
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

E = EventType


class Finding(NamedTuple):
    """How an operation ended, as somebody outside has it. `evidence` says who, in words; `unknown` settles nothing."""

    status: OperationStatus
    evidence: str
    result: bytes | None = None


def record_finding(writer: Writer, run_dir: RunDir, operation: Operation, finding: Finding) -> Run:
    """Appends `finding` to its operation, durable: as a late result if the run is over or the operation was settled.

    That nobody knows more than before is said once, not again by everybody who asks.
    """
    run = run_dir.current(writer)
    known = _in_doubt(run, operation.operation_id)
    is_late = run.is_over or known is None
    if finding.status is OperationStatus.UNKNOWN and (is_late or _is_said(known)):
        return run
    kind = E.OPERATION_LATE_RESULT if is_late else E.OPERATION_RECONCILED
    run = run_dir.append_as_anyone(writer, kind, _payload(known or operation, finding))
    run_dir.write_snapshot(writer)
    if operation.resource is not None:
        Resources(writer.session).release_settled(writer, run_dir)
    return run


def settle_doubtful(
    session: SessionDir, run_dir: RunDir, doubtful: Iterable[Operation], found: Mapping[str, Finding]
) -> None:
    """Records in a hold of its own what was `found`, by their ids, of `doubtful` operations. Raises StorageFailed."""
    if not found:
        return
    with writing(session) as writer:
        session.activity.note(session.session_id)
        for operation in doubtful:
            if operation.operation_id in found:
                record_finding(writer, run_dir, operation, found[operation.operation_id])


def _in_doubt(run: Run, operation_id: str) -> Operation | None:
    listed = run.open_operations + run.unresolved_operations
    return next((each for each in listed if each.operation_id == operation_id), None)


def _is_said(known: Operation | None) -> bool:
    return known is not None and known.status is OperationStatus.UNKNOWN


def _payload(operation: Operation, finding: Finding) -> Doc:
    is_unknown = finding.status is OperationStatus.UNKNOWN
    payload: Doc = {
        "operationId": operation.operation_id,
        "status": finding.status.value,
        "evidence": finding.evidence,
        "mayHaveEffects": is_unknown and operation.effect == WRITE,
        "actor": this_actor(),
    }
    if finding.status is not OperationStatus.SUCCEEDED:
        payload["error"] = finding.evidence
    if finding.result is not None:
        payload["result"] = finding.result.decode("utf-8", "replace")
    return payload
