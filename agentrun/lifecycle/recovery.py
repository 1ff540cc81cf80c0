"""What becomes of a run whose executor is gone: the lease first, then the truth about each operation, then a verdict.

Nothing is executed here. A write that was under way is settled by evidence or is `unknown`, and is never sent again;
what only looks is made again as far as its retries allow; what never started is left for whoever goes on.
"""

from __future__ import annotations

from agentrun.lifecycle.settlement import Finding, record_finding
from agentrun.lifecycle.winding_down import LOST
from agentrun.named import StrEnum
from agentrun.records.codec import Doc
from agentrun.records.lease import Lease
from agentrun.records.operation import MODEL, TOOL, WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store.runs import RunDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

E, O = EventType, OperationStatus  # noqa: E741 - short, as in `states`

STALE_NOTE = "stale note"
# What settles a write for good; anything else leaves it unknown.
CERTAIN = frozenset({O.SUCCEEDED, O.FAILED, O.CANCELLED})
# Events of these say by themselves that nobody executes the run.
_WORKING = frozenset({RunStatus.RUNNING, RunStatus.WAITING_INPUT, RunStatus.COMPACTING})


class Verdict(StrEnum):
    """What a run is due for once its operations are settled as far as they can be."""

    CONTINUE = "continue"
    WIND_DOWN = "wind down"
    STAY = "stay"


def verdict(run: Run, max_attempts: int, *, is_used_up: bool = False) -> Verdict:
    """The contract's table: an end that was decided before counts first, then the attempts, then what is unknown."""
    if run.ending is not None or is_used_up or run.next_attempt > max_attempts:
        return Verdict.WIND_DOWN
    return Verdict.STAY if unknown_operations(run) else Verdict.CONTINUE


def unknown_operations(run: Run) -> list[Operation]:
    """The writes of which nobody knows how they ended: as long as there is one, the run cannot go on."""
    return [operation for operation in run.unresolved_operations if operation.status is O.UNKNOWN]


def open_writes(run: Run) -> list[Operation]:
    """The writes that were under way, of which somebody may know how they ended."""
    under_way = [operation for operation in run.open_operations if operation.status is O.RUNNING]
    return [operation for operation in under_way if operation.effect == WRITE]


def begin(writer: Writer, run_dir: RunDir, *, lease_seconds: float, reason: str, fenced: Doc | None = None) -> Lease:
    """Fences the old executor out and says that its run is being reconciled. The caller has the liveness lock.

    `fenced` is the owner of an executor elsewhere that has it instead, and does not respond.
    """
    run = run_dir.current(writer)
    spent = run_dir.unrecorded_ms(run)
    lease = run_dir.take_over(writer, lease_seconds=lease_seconds, fenced=fenced)
    if run.status in _WORKING:
        operations = [operation.operation_id for operation in run.open_operations]
        payload = {"reason": reason, "operationIds": operations, "executingMs": spent}
        run_dir.append(lease, writer, E.RUN_RECONCILING, payload)
        run_dir.write_snapshot(writer)
    return lease


def learn_remote_ids(writer: Writer, lease: Lease, run_dir: RunDir) -> None:
    """Takes over the remote ids that a fenced executor could not store: a probe can ask by them."""
    run = run_dir.check(lease, writer)
    for note in run_dir.stale_notes():
        payload = _payload(note)
        known = next((each for each in run.open_operations if each.operation_id == payload.get("operationId")), None)
        if note.get("type") == E.TOOL_REMOTE_ID and known and known.remote_id is None:
            payload = {"operationId": known.operation_id, "remoteId": str(payload.get("remoteId"))}
            run = run_dir.append(lease, writer, E.TOOL_REMOTE_ID, payload)


def stale_findings(run_dir: RunDir, operations: Iterable[Operation]) -> dict[str, Finding]:
    """What fenced executors left about how these operations ended, by operation id."""
    notes = [_payload(note) for note in run_dir.stale_notes() if note.get("type") == E.TOOL_FINISHED]
    found: dict[str, Finding] = {}
    for operation in operations:
        for payload in notes:
            same = payload.get("operationId"), payload.get("attempt")
            finding = _finding(payload)
            if same == (operation.operation_id, operation.attempt) and finding is not None:
                found[operation.operation_id] = finding
    return found


def settle_open(
    writer: Writer, lease: Lease, run_dir: RunDir, findings: Mapping[str, Finding], retries: Mapping[str, int]
) -> Run:
    """Gives each operation that was under way its truth. `retries` has the further attempts of each tool by name.

    Nothing of the run may be alive any more. Raises FencedOut.
    """
    for operation in run_dir.check(lease, writer).open_operations:
        if operation.status is O.RUNNING or operation.kind == MODEL:
            _settle(writer, lease, run_dir, operation, findings.get(operation.operation_id), retries)
    return run_dir.check(lease, writer)


def record_findings(writer: Writer, run_dir: RunDir, findings: Mapping[str, Finding]) -> Run:
    """Records what has become known of operations that were unknown; needs no lease."""
    for operation in unknown_operations(run_dir.current(writer)):
        if operation.operation_id in findings:
            record_finding(writer, run_dir, operation, findings[operation.operation_id])
    return run_dir.current(writer)


def _settle(
    writer: Writer,
    lease: Lease,
    run_dir: RunDir,
    operation: Operation,
    finding: Finding | None,
    retries: Mapping[str, int],
) -> None:
    if operation.effect == WRITE:
        record_finding(writer, run_dir, operation, finding or Finding(O.UNKNOWN, LOST))
    elif operation.kind == TOOL and operation.attempt <= retries.get(operation.name, 0):
        # Open again, so that the next attempt counts on; the budget is the one it had.
        payload = {
            "operationId": operation.operation_id,
            "status": O.CANCELLED.value,
            "error": LOST,
            "mayHaveEffects": False,
            "willRetry": True,
            "attempt": operation.attempt,
        }
        run_dir.append(lease, writer, E.TOOL_FINISHED, payload)
    else:
        record_finding(writer, run_dir, operation, Finding(O.CANCELLED, LOST))


def _payload(note: Doc) -> Doc:
    payload = note.get("payload")
    return payload if isinstance(payload, dict) else {}


def _finding(payload: Doc) -> Finding | None:
    """What a note about the end of a call proves; None if it does not know how the call ended either."""
    try:
        status = O(str(payload.get("status")))
    except ValueError:
        return None
    if status not in CERTAIN or payload.get("mayHaveEffects") or payload.get("willRetry"):
        return None
    result, error = payload.get("result"), payload.get("error")
    evidence = f"{STALE_NOTE}: {error}" if error else STALE_NOTE
    return Finding(status, evidence, None if result is None else str(result).encode("utf-8", "replace"))
