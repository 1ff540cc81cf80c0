"""What each event changes in the fold of a run: one function for each type, and one table of them."""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import operation_of
from agentrun.records.run import Run, status_in
from agentrun.records.usage import after_executing, after_operation
from agentrun.states import ENDING_OF_INTENT, EventType, RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

E = EventType


def _lease_acquired(run: Run, event: Event) -> Run:
    owner = event.payload.get("owner")
    return run._replace(
        whereabouts=_left_elsewhere(run, owner),
        lease_owner=owner,
        lease_expires_at=event.payload.get("expiresAt"),
        fenced=event.payload.get("fenced"),
        attempts=event.payload.get("attempt", run.attempts + 1),
    )


def _left_elsewhere(run: Run, owner: Doc | None) -> tuple[Doc, ...]:
    """Where something of the run may be alive once `owner` has it, who sees its own place; nothing outlives a boot."""
    left = (*run.whereabouts, *run.lost_in())
    if not left or owner is None:
        return left
    places = {_place(each): each for each in left if each.get("bootId") == owner.get("bootId")}
    # From a user namespace of its own it looks into none of the processes beside it, and from beside it into all.
    namespace, apart = _place(owner)
    seen = {each for each in places if each[0] == namespace and apart in (None, each[1])}
    return tuple(each for place, each in places.items() if place[0] is not None and place not in seen)


def _place(owner: Doc) -> tuple[object, object]:
    return owner.get("pidNamespace"), owner.get("userNamespace")


def _lease_released(run: Run, event: Event) -> Run:
    told = event.payload.get("whereabouts")
    return run._replace(
        whereabouts=run.whereabouts if told is None else tuple(told),
        lease_owner=None,
        lease_expires_at=None,
        usage=after_executing(run.usage, event),
    )


def _started(run: Run, event: Event) -> Run:
    return run._replace(started_at=run.started_at or event.at, timeout_at=event.payload.get("timeoutAt"))


def _delivered(run: Run, event: Event) -> Run:
    return run._replace(delivered_inputs=run.delivered_inputs + tuple(event.payload.get("messageSeqs") or ()))


def _waiting(run: Run, event: Event) -> Run:
    # Waiting does not count as executing, so the deadline of the run stands still until the answer comes.
    return run._replace(waiting_for=event.payload, timeout_at=None, usage=after_executing(run.usage, event))


def _answered(run: Run, event: Event) -> Run:
    # The answer to an approval is used up by this event; the answer to a question goes to the model.
    approval = bool(run.waiting_for) and (run.waiting_for or {}).get("kind") == "approval"
    used = (event.payload["messageSeq"],) if approval and "messageSeq" in event.payload else ()
    return run._replace(
        waiting_for=None,
        timeout_at=event.payload.get("timeoutAt"),
        delivered_inputs=run.delivered_inputs + used,
    )


def _ending(run: Run, event: Event, intent: str) -> Run:
    if run.ending is not None:
        # Its end is fixed. In an order of events that none of us writes it may wait all the same.
        return run._replace(waiting_for=None)
    return run._replace(
        ending=ENDING_OF_INTENT.get(intent, RunStatus.CANCELLED),
        cancel_requested_at=event.at,
        reason=event.payload.get("reason"),
        waiting_for=None,
    )


def _cancel_requested(run: Run, event: Event) -> Run:
    force = run.force or event.payload.get("force") is True
    run = run._replace(force=force, whereabouts=() if event.payload.get("gone") is True else run.whereabouts)
    return _ending(run, event, str(event.payload.get("intent", "cancel")))


def _failing(run: Run, event: Event) -> Run:
    return _ending(run, event, "failure")


def _reconciling(run: Run, event: Event) -> Run:
    # Whoever goes on asks again: a question is open only while the run waits for its answer. Nobody executes, so the
    # deadline stands still, and what the lost executor had used counts.
    return run._replace(waiting_for=None, timeout_at=None, usage=after_executing(run.usage, event))


def _child_announced(run: Run, event: Event) -> Run:
    told = {name: event.payload.get(name) for name in ("operationId", "sessionId", "afterSeq")}
    is_known = any(
        (each.get("operationId"), each.get("sessionId")) == (told["operationId"], told["sessionId"])
        for each in run.children
    )
    return run if is_known else run._replace(children=(*run.children, told))


def _survivors_found(run: Run, event: Event) -> Run:
    return run._replace(survivors=tuple(map(str, event.payload.get("survivors") or ())))


def _finished(run: Run, event: Event) -> Run:
    payload = event.payload
    return run._replace(
        survivors=(),
        whereabouts=(),
        terminal_status=status_in(payload.get("terminalStatus")),
        terminal_at=event.at,
        reason=payload.get("reason", run.reason),
        report=payload.get("report"),
        returned_inputs=tuple(payload.get("returnedInputs") or ()),
        waiting_for=None,
        lease_owner=None,
        lease_expires_at=None,
        usage=after_executing(run.usage, event),
    )


def _operation(run: Run, event: Event) -> Run:
    operation_id = event.payload.get("operationId")
    known = None
    # Loops, and no generators: an executor passes here for every event.
    for each in run.open_operations + run.unresolved_operations:
        if each.operation_id == operation_id:
            known = each
            break
    changed = known.apply(event) if known else operation_of(event)
    usage = after_operation(run.usage, event, known)
    if changed is None:
        return run if usage is run.usage else run._replace(usage=usage)
    still_open = tuple([each for each in run.open_operations if each.operation_id != operation_id])
    unresolved = tuple([each for each in run.unresolved_operations if each.operation_id != operation_id])
    if changed.is_open:
        still_open = (*still_open, changed.light())
    elif changed.is_unresolved:
        unresolved = (*unresolved, changed.light())
    return run._replace(usage=usage, open_operations=still_open, unresolved_operations=unresolved)


# By the event's type; any other event changes no more than the number that the run has come to.
CHANGES: dict[str, Callable[[Run, Event], Run]] = {
    E.RUN_LEASE_ACQUIRED: _lease_acquired,
    E.RUN_LEASE_RELEASED: _lease_released,
    E.RUN_STARTED: _started,
    E.INPUT_DELIVERED: _delivered,
    E.RUN_WAITING_INPUT: _waiting,
    E.RUN_INPUT_RECEIVED: _answered,
    E.RUN_CHILD_ANNOUNCED: _child_announced,
    E.RUN_CANCEL_REQUESTED: _cancel_requested,
    E.RUN_FAILING: _failing,
    E.RUN_SURVIVORS_FOUND: _survivors_found,
    E.RUN_RECONCILING: _reconciling,
    E.RUN_FINISHED: _finished,
    E.MODEL_REQUEST_STARTED: _operation,
    E.MODEL_REQUEST_FINISHED: _operation,
    E.TOOL_REGISTERED: _operation,
    E.TOOL_STARTED: _operation,
    E.TOOL_PROGRESS: _operation,
    E.TOOL_REMOTE_ID: _operation,
    E.TOOL_FINISHED: _operation,
    E.OPERATION_CANCEL_REQUESTED: _operation,
    E.OPERATION_RECONCILED: _operation,
    E.OPERATION_LATE_RESULT: _operation,
}
