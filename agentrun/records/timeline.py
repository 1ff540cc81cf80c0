"""A run against time: when each operation was under way, and what the run's status was, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrun.errors import TransitionRefused
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import Operation, fold_operations
from agentrun.records.views import InputState, RunDetail
from agentrun.states import INITIAL, EventType, OperationStatus, RunStatus, next_status

E = EventType
_BEGINS = frozenset({E.MODEL_REQUEST_STARTED, E.TOOL_STARTED})
_ENDS = frozenset({E.MODEL_REQUEST_FINISHED, E.TOOL_FINISHED, E.OPERATION_RECONCILED, E.OPERATION_LATE_RESULT})


class Attempt(NamedTuple):
    """One attempt at an operation. `finished_at` is None as long as nobody knows of its end."""

    started_at: str
    finished_at: str | None
    status: OperationStatus

    def to_doc(self) -> Doc:
        """For scripts."""
        return {"startedAt": self.started_at, "finishedAt": self.finished_at, "status": self.status.value}


class Bar(NamedTuple):
    """An operation and its attempts, in order; none if it never started."""

    operation: Operation
    attempts: tuple[Attempt, ...]


class Stay(NamedTuple):
    """How long the run was in a status. `until` is None for the status that it has now."""

    status: RunStatus
    since: str
    until: str | None

    def to_doc(self) -> Doc:
        """For scripts."""
        return {"status": self.status.value, "since": self.since, "until": self.until}


class Timeline(NamedTuple):
    """`bars` in the order in which the operations were registered, `stays` one after the other.

    `deliveries` has the time at which each of the user's messages, by its number, was taken by the run.
    """

    bars: tuple[Bar, ...]
    stays: tuple[Stay, ...]
    deliveries: dict[int, str]

    def to_doc(self, inputs: Iterable[InputState] = ()) -> Doc:
        """What `show --timeline --json` says of a run, besides its name; `inputs` are the run's."""
        return {
            "statuses": [stay.to_doc() for stay in self.stays],
            "operations": [_bar_doc(bar) for bar in self.bars],
            "inputs": [
                {
                    "messageSeq": state.message.seq,
                    "mode": state.message.mode,
                    "state": state.state,
                    "at": state.message.at,
                    "deliveredAt": self.deliveries.get(state.message.seq),
                }
                for state in inputs
            ],
        }


class RunRecord(NamedTuple):
    """All that is known of a run: what happened in it, and when."""

    detail: RunDetail
    timeline: Timeline


def timeline_of(events: Sequence[Event]) -> Timeline:
    """The timeline of the run whose events these are, oldest first."""
    attempts = _attempts(events)
    bars = (Bar(operation, tuple(attempts.get(operation.operation_id, ()))) for operation in fold_operations(events))
    return Timeline(tuple(bars), tuple(_stays(events)), _deliveries(events))


def _attempts(events: Iterable[Event]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for event in events:
        operation_id = event.payload.get("operationId")
        if not isinstance(operation_id, str):
            continue
        known = found.setdefault(operation_id, [])
        if event.type in _BEGINS:
            known.append(Attempt(event.at, None, OperationStatus.RUNNING))
        elif event.type in _ENDS and known and known[-1].finished_at is None:
            known[-1] = known[-1]._replace(finished_at=event.at, status=_outcome(event))
    return found


def _outcome(event: Event) -> OperationStatus:
    try:
        return OperationStatus(str(event.payload.get("status")))
    except ValueError:
        return OperationStatus.UNKNOWN


def _stays(events: Iterable[Event]) -> list[Stay]:
    stays: list[Stay] = []
    status = INITIAL
    for event in events:
        if not stays:
            stays.append(Stay(status, event.at, None))
        try:
            status = next_status(status, event.type, event.payload.get("terminalStatus"))
        except TransitionRefused:
            continue  # as the fold of the run passes over it
        if status is not stays[-1].status:
            stays[-1] = stays[-1]._replace(until=event.at)
            stays.append(Stay(status, event.at, None))
    return stays


def _deliveries(events: Iterable[Event]) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in events:
        if event.type == E.INPUT_DELIVERED:
            found |= dict.fromkeys(event.payload.get("messageSeqs") or (), event.at)
        elif event.type == E.RUN_INPUT_RECEIVED and "approved" in event.payload:
            found[event.payload["messageSeq"]] = event.at
    return found


def _bar_doc(bar: Bar) -> Doc:
    operation = bar.operation
    return {
        "operationId": operation.operation_id,
        "kind": operation.kind,
        "name": operation.name,
        "turnId": operation.turn_id,
        "status": operation.status.value,
        "unresolved": operation.is_unresolved,
        "registeredAt": operation.registered_at,
        "startedAt": operation.started_at,
        "finishedAt": operation.finished_at,
        "attempts": [attempt.to_doc() for attempt in bar.attempts],
    }
