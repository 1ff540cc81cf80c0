"""What may follow what: the statuses of runs and operations, and the events that move them.

`TRANSITIONS` is the only place that decides how a run moves; the code, the tests and the diagram in
`docs/lifecycle.md` are made from it. A status with an empty row is terminal. `FACTS` lists the events that are
recorded without moving the run, and where. `OPERATION_TRANSITIONS` does the same for one operation.
"""

from __future__ import annotations

from agentrun.errors import TransitionRefused
from agentrun.named import StrEnum


class RunStatus(StrEnum):
    """Status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_INPUT = "waiting_input"
    COMPACTING = "compacting"
    RECONCILING = "reconciling"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class OperationStatus(StrEnum):
    """Status of one model request or tool call."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class EventType(StrEnum):
    """Types of the lines of `operations.jsonl`; a reader must pass over types it does not know."""

    RUN_ACCEPTED = "run.accepted"
    RUN_LEASE_ACQUIRED = "run.lease_acquired"
    RUN_LEASE_RELEASED = "run.lease_released"
    RUN_STARTED = "run.started"
    INPUT_DELIVERED = "input.delivered"
    MODEL_REQUEST_STARTED = "model.request.started"
    MODEL_REQUEST_FINISHED = "model.request.finished"
    TOOL_REGISTERED = "tool.registered"
    TOOL_STARTED = "tool.started"
    TOOL_PROGRESS = "tool.progress"
    TOOL_REMOTE_ID = "tool.remote_id"
    TOOL_FINISHED = "tool.finished"
    RUN_WAITING_INPUT = "run.waiting_input"
    RUN_INPUT_RECEIVED = "run.input_received"
    RUN_COMPACTING = "run.compacting"
    RUN_COMPACTED = "run.compacted"
    RUN_CHILD_ANNOUNCED = "run.child_announced"
    RUN_CANCEL_REQUESTED = "run.cancel_requested"
    RUN_FAILING = "run.failing"
    RUN_SURVIVORS_FOUND = "run.survivors_found"
    RUN_RECONCILING = "run.reconciling"
    OPERATION_CANCEL_REQUESTED = "operation.cancel_requested"
    OPERATION_RECONCILED = "operation.reconciled"
    OPERATION_LATE_RESULT = "operation.late_result"
    RUN_FINISHED = "run.finished"


S = RunStatus  # short, since the table below is read as a table
E = EventType

# Status of a run whose `run.accepted` has just been appended.
INITIAL = S.QUEUED

# Each row: what the event makes of a run in that status. `run.finished` names one of several ends in its payload.
# `run.started` after `run.reconciling` begins the next stretch of a run that was taken over.
TRANSITIONS: dict[RunStatus, dict[EventType, tuple[RunStatus, ...]]] = {
    S.QUEUED: {
        E.RUN_STARTED: (S.RUNNING,),
        E.RUN_FINISHED: (S.CANCELLED,),
    },
    S.RUNNING: {
        E.RUN_WAITING_INPUT: (S.WAITING_INPUT,),
        E.RUN_COMPACTING: (S.COMPACTING,),
        E.RUN_RECONCILING: (S.RECONCILING,),
        E.RUN_CANCEL_REQUESTED: (S.CANCELLING,),
        E.RUN_FAILING: (S.CANCELLING,),
        E.RUN_FINISHED: (S.COMPLETED,),
    },
    S.WAITING_INPUT: {
        E.RUN_INPUT_RECEIVED: (S.RUNNING,),
        E.RUN_RECONCILING: (S.RECONCILING,),
        E.RUN_CANCEL_REQUESTED: (S.CANCELLING,),
        E.RUN_FAILING: (S.CANCELLING,),
    },
    S.COMPACTING: {
        E.RUN_COMPACTED: (S.RUNNING,),
        E.RUN_RECONCILING: (S.RECONCILING,),
        E.RUN_CANCEL_REQUESTED: (S.CANCELLING,),
        E.RUN_FAILING: (S.CANCELLING,),
    },
    S.RECONCILING: {
        E.RUN_STARTED: (S.RUNNING,),
        E.RUN_CANCEL_REQUESTED: (S.CANCELLING,),
        E.RUN_FAILING: (S.CANCELLING,),
    },
    S.CANCELLING: {
        E.RUN_FINISHED: (S.CANCELLED, S.TIMED_OUT, S.FAILED),
    },
    S.COMPLETED: {},
    S.FAILED: {},
    S.CANCELLED: {},
    S.TIMED_OUT: {},
}

TERMINAL = frozenset(status for status, row in TRANSITIONS.items() if not row)
OPEN = frozenset(TRANSITIONS) - TERMINAL
# An operation that is under way may end in any of these; none of them starts a new one.
_UNDER_WAY = OPEN - {S.QUEUED}

_KNOWN = {kind.value: kind for kind in EventType}

# Events that leave the status as it is, and the statuses in which they may be recorded.
FACTS: dict[EventType, frozenset[RunStatus]] = {
    E.RUN_LEASE_ACQUIRED: OPEN,
    E.RUN_LEASE_RELEASED: OPEN,
    E.INPUT_DELIVERED: frozenset({S.RUNNING}),
    E.MODEL_REQUEST_STARTED: frozenset({S.RUNNING, S.COMPACTING}),
    E.MODEL_REQUEST_FINISHED: _UNDER_WAY,
    E.TOOL_REGISTERED: frozenset({S.RUNNING}),
    E.TOOL_STARTED: frozenset({S.RUNNING}),
    E.TOOL_PROGRESS: _UNDER_WAY,
    E.TOOL_REMOTE_ID: _UNDER_WAY,
    E.TOOL_FINISHED: _UNDER_WAY,
    # Not of a run that is to stop, or has lost its executor: nothing new begins there.
    E.RUN_CHILD_ANNOUNCED: frozenset({S.RUNNING, S.WAITING_INPUT, S.COMPACTING}),
    # Only recorded: the first intent has fixed the end. A queued run is finished in the same hold.
    E.RUN_CANCEL_REQUESTED: frozenset({S.QUEUED, S.CANCELLING}),
    E.RUN_FAILING: frozenset({S.CANCELLING}),
    # What cannot be ended keeps the run winding down, and is named for whoever can.
    E.RUN_SURVIVORS_FOUND: frozenset({S.CANCELLING}),
    E.RUN_RECONCILING: frozenset({S.RECONCILING}),
    # Kept also while the run winds down or has lost its executor: whoever goes on with it heeds it then.
    E.OPERATION_CANCEL_REQUESTED: _UNDER_WAY,
    # What becomes known of an operation is recorded whatever became of its run.
    E.OPERATION_RECONCILED: frozenset(TRANSITIONS),
    E.OPERATION_LATE_RESULT: frozenset(TRANSITIONS),
}

# Which end an intent leads to; the first one stored decides.
ENDING_OF_INTENT = {
    "cancel": S.CANCELLED,
    "interrupt": S.CANCELLED,
    "parent": S.CANCELLED,
    "signal": S.CANCELLED,
    "timeout": S.TIMED_OUT,
    "failure": S.FAILED,
}

# What `show` calls the winding down that leads to each end.
WINDING_DOWN_WORDS = {S.CANCELLED: "cancelling", S.TIMED_OUT: "timing out", S.FAILED: "failing"}

O = OperationStatus  # noqa: E741 - short, since the table below is read as a table

OPERATION_TRANSITIONS: dict[OperationStatus, frozenset[OperationStatus]] = {
    O.PENDING: frozenset({O.RUNNING, O.SKIPPED, O.CANCELLED}),
    # Back to pending: the attempt failed and another one is to come.
    O.RUNNING: frozenset({O.PENDING, O.SUCCEEDED, O.FAILED, O.CANCELLED, O.TIMED_OUT, O.UNKNOWN}),
    # Settled later by a probe, a stale note or the user's word.
    O.UNKNOWN: frozenset({O.SUCCEEDED, O.FAILED, O.CANCELLED}),
    # A write that may have had effects stays unresolved until it is settled.
    O.CANCELLED: frozenset({O.SUCCEEDED, O.FAILED, O.CANCELLED}),
    O.TIMED_OUT: frozenset({O.SUCCEEDED, O.FAILED, O.CANCELLED}),
    O.FAILED: frozenset({O.SUCCEEDED, O.FAILED, O.CANCELLED}),
    O.SUCCEEDED: frozenset(),
    O.SKIPPED: frozenset(),
}

# How an operation of which nobody knows the end can be settled.
SETTLEMENTS = tuple(status for status in O if status in OPERATION_TRANSITIONS[O.UNKNOWN])

OPEN_OPERATION = frozenset({O.PENDING, O.RUNNING})


def status_needed(event: str, end: str | None = None) -> RunStatus | None:
    """A status in which `event` may stand, for a run of which earlier events cannot be read; None if there is none.

    `end` is as for `next_status`. Whoever appended the event looked at this table too, so the run had such a status.
    """
    for status in (S.RUNNING, S.WAITING_INPUT, S.COMPACTING, S.RECONCILING, S.CANCELLING):
        try:
            next_status(status, event, end)
        except TransitionRefused:
            continue
        return status
    return None


def next_status(status: RunStatus, event: str, end: str | None = None) -> RunStatus:
    """The status after `event` in `status`; `end` is the `terminalStatus` of a `run.finished`.

    An event type that this version does not know changes nothing: a newer version may have written it.
    Raises TransitionRefused if the event must not stand there.
    """
    known = _KNOWN.get(event)
    if known is None:
        return status
    targets = TRANSITIONS[status].get(known)
    if targets is None:
        if status in FACTS.get(known, ()):
            return status
        raise TransitionRefused(f"{event} cannot happen while the run is {status}")
    if known is E.RUN_FINISHED:
        if end not in targets:
            raise TransitionRefused(f"a run that is {status} cannot end as {end}")
        return RunStatus(end)
    return targets[0]
