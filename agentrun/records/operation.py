"""One model request or tool call, folded from the events that name it."""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, without
from agentrun.records.event import Event
from agentrun.states import OPEN_OPERATION, OPERATION_TRANSITIONS, EventType, OperationStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

E = EventType
O = OperationStatus  # noqa: E741 - short, as in `states`
MODEL, TOOL, CHECK = "model", "tool", "check"
READ, WRITE = "read", "write"
# Why a call was not made although it was wanted, as its `error` says it (more may follow): its configuration, the user,
# or another write was against it. For any other reason for that it was itself no call any more, or none that can be.
NOT_ALLOWED = "its configuration does not allow it (approve = deny)"
DENIED = "the user denied it"
HELD, HELD_UNKNOWN = "the resource", "who has the resource"
_REFUSALS = (NOT_ALLOWED, DENIED, f"{HELD} ", f"{HELD_UNKNOWN} ")
# What can be found out about an operation afterwards; anything else (a probe's `running`) settles nothing.
_STATUSES: dict[str, OperationStatus] = {status.value: status for status in OperationStatus}
_FINDINGS = (O.SUCCEEDED, O.FAILED, O.CANCELLED, O.TIMED_OUT, O.UNKNOWN)


class Operation(NamedTuple):
    """An operation; `name` is the tool's or the model's. `result`, `text` of a reply and arguments stay out of
    `run.json` (`brief`), where only what is open or unresolved is listed.

    `pause_ms` and `paused_at` are there between two attempts: how long the pause is, and since when.
    `extra` keeps what other versions have put into `run.json` about it.
    `settled` says that a cancel, a probe, a late result or the user's word made an unsure outcome certain.
    """

    operation_id: str
    kind: str
    name: str
    turn_id: str | None = None
    tool_call_id: str | None = None
    arguments: Doc | None = None
    effect: str | None = None
    resource: str | None = None
    idempotency_key: str | None = None
    status: OperationStatus = OperationStatus.PENDING
    attempt: int = 0
    remote_id: str | None = None
    may_have_effects: bool = False
    settled: bool = False
    registered_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    cancel_requested_at: str | None = None
    result: str | None = None
    blob: Doc | None = None
    error: str | None = None
    note: str | None = None
    check: Doc | None = None
    pause_ms: int | None = None
    paused_at: str | None = None
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    @property
    def is_open(self) -> bool:
        """Whether it is registered or under way, without an outcome yet."""
        return self.status in OPEN_OPERATION

    @property
    def is_unresolved(self) -> bool:
        """Whether nobody can say what a write did outside (contract of `unknown` and `mayHaveEffects`)."""
        if self.status is OperationStatus.UNKNOWN:
            return True
        return self.effect == WRITE and self.may_have_effects and not self.settled and not self.is_open

    @property
    def is_refused(self) -> bool:
        """Whether it was not made because something or somebody was against it."""
        return self.status is OperationStatus.SKIPPED and (self.error or "").startswith(_REFUSALS)

    def brief(self) -> Doc:
        """The fields that `run.json` lists of an open or unresolved operation."""
        return self._brief() | self.extra

    def _brief(self) -> Doc:
        return {
            "operationId": self.operation_id,
            "kind": self.kind,
            "name": self.name,
            "turnId": self.turn_id,
            "effect": self.effect,
            "resource": self.resource,
            "idempotencyKey": self.idempotency_key,
            "status": self.status.value,
            "attempt": self.attempt,
            "remoteId": self.remote_id,
            "mayHaveEffects": self.may_have_effects,
            "registeredAt": self.registered_at,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "cancelRequestedAt": self.cancel_requested_at,
            "error": self.error,
        }

    def to_doc(self) -> Doc:
        """All fields, for scripts."""
        return self.brief() | {
            "toolCallId": self.tool_call_id,
            "arguments": self.arguments,
            "settled": self.settled,
            "unresolved": self.is_unresolved,
            "result": self.result,
            "blob": self.blob,
            "note": self.note,
            "check": self.check,
            "pauseMs": self.pause_ms,
            "pausedAt": self.paused_at,
        }

    @classmethod
    def from_brief(cls, doc: Doc) -> Operation:
        """The operation that `brief` made `doc` of. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(
            operation_id=doc["operationId"],
            kind=doc["kind"],
            name=doc["name"],
            turn_id=doc["turnId"],
            effect=doc["effect"],
            resource=doc["resource"],
            idempotency_key=doc["idempotencyKey"],
            status=OperationStatus(doc["status"]),
            attempt=doc["attempt"],
            remote_id=doc["remoteId"],
            may_have_effects=doc["mayHaveEffects"],
            registered_at=doc["registeredAt"],
            started_at=doc["startedAt"],
            finished_at=doc["finishedAt"],
            cancel_requested_at=doc.get("cancelRequestedAt"),
            error=doc["error"],
            extra=without(doc, _BRIEF),
        )

    def light(self) -> Operation:
        """The same without what `brief` leaves out, so that a fold costs the same whatever tools print."""
        return self._replace(
            arguments=None, result=None, blob=None, note=None, tool_call_id=None, check=None, pause_ms=None,
            paused_at=None,
        )  # fmt: skip

    def apply(self, event: Event) -> Operation:
        """The operation after `event`, which names it; an event that does not fit leaves it as it is."""
        change = _CHANGES.get(event.type)
        return change(self, event) if change else self

    def _moved(self, status: object, **changes: object) -> Operation:
        target = _STATUSES.get(status, O.UNKNOWN) if isinstance(status, str) else O.UNKNOWN
        if target is not self.status and target not in OPERATION_TRANSITIONS[self.status]:
            return self
        over: Doc = {"pause_ms": None, "paused_at": None}
        return self._replace(status=target, **(over | changes))


def operation_of(event: Event) -> Operation | None:
    """The operation that `event` registers, or None."""
    payload = event.payload
    operation_id = payload.get("operationId")
    if not isinstance(operation_id, str):
        return None
    if event.type == E.MODEL_REQUEST_STARTED:
        return Operation(
            operation_id, MODEL, str(payload.get("model")), turn_id=payload.get("turnId"),
            status=OperationStatus.RUNNING, attempt=payload.get("attempt", 1),
            registered_at=event.at, started_at=event.at,
        )  # fmt: skip
    if event.type == E.TOOL_REGISTERED:
        check = payload["check"] if isinstance(payload.get("check"), dict) else None
        return Operation(
            operation_id, TOOL if check is None else CHECK, str(payload.get("toolName")), turn_id=payload.get("turnId"),
            tool_call_id=payload.get("toolCallId"), arguments=payload.get("arguments"),
            effect=payload.get("effect", WRITE), resource=payload.get("resource"),
            idempotency_key=payload.get("idempotencyKey"), registered_at=event.at, check=check,
        )  # fmt: skip
    return None


def fold_operations(events: Iterable[Event]) -> list[Operation]:
    """All operations of a run, in the order in which they were registered."""
    operations: dict[str, Operation] = {}
    for event in events:
        operation_id = event.payload.get("operationId")
        if not isinstance(operation_id, str):
            continue
        known = operations.get(operation_id)
        changed = known.apply(event) if known else operation_of(event)
        if changed:
            operations[operation_id] = changed
    return list(operations.values())


def _started(operation: Operation, event: Event) -> Operation:
    return operation._moved(
        OperationStatus.RUNNING,
        attempt=event.payload.get("attempt", operation.attempt + 1),
        started_at=operation.started_at or event.at,
    )


def _progressed(operation: Operation, event: Event) -> Operation:
    # How far it has come is worth a note until there is an outcome.
    return operation._replace(note=str(event.payload.get("text"))) if operation.is_open else operation


def _remote_id(operation: Operation, event: Event) -> Operation:
    return operation._replace(remote_id=str(event.payload.get("remoteId")))


def _finished(operation: Operation, event: Event) -> Operation:
    payload = event.payload
    if payload.get("willRetry"):
        pause = payload.get("pauseMs")
        paused = {"pause_ms": pause, "paused_at": event.at} if isinstance(pause, int) else {}
        return operation._moved(OperationStatus.PENDING, error=payload.get("error"), **paused)
    return operation._moved(
        payload.get("status"),
        finished_at=event.at,
        result=payload.get("result", payload.get("text")),
        blob=payload.get("blob"),
        error=payload.get("error"),
        note=payload.get("note"),
        may_have_effects=payload.get("mayHaveEffects") is True,
    )


def _settled(operation: Operation, event: Event) -> Operation:
    payload = event.payload
    finding = payload.get("status")
    if not (operation.is_open or operation.is_unresolved):
        # How it ended is known. What comes later is on record, and overrules nothing.
        return operation
    if finding not in _FINDINGS and not (operation.status is O.PENDING and finding == O.SKIPPED):
        return operation
    certain = finding != O.UNKNOWN
    changes: Doc = {"finished_at": operation.finished_at or event.at}
    if payload.get("result") is not None:
        changes["result"] = payload["result"]
    if operation.is_open:
        # An operation that lost its executor: the finding is its outcome.
        changes |= {
            "error": payload.get("error", operation.error),
            "may_have_effects": payload.get("mayHaveEffects") is True,
        }
        changes |= {"pause_ms": None, "paused_at": None}
        return operation._replace(status=OperationStatus(finding), settled=certain, **changes)
    if certain and finding != operation.status:
        # Why nobody knew it is no reason for how it ended.
        changes["error"] = payload.get("error")
    return operation._moved(finding, settled=certain or operation.settled, **changes)


def _cancel_requested(operation: Operation, event: Event) -> Operation:
    return operation._replace(cancel_requested_at=operation.cancel_requested_at or event.at)


_CHANGES: dict[str, Callable[[Operation, Event], Operation]] = {
    E.MODEL_REQUEST_STARTED: _started,
    E.TOOL_STARTED: _started,
    E.TOOL_PROGRESS: _progressed,
    E.TOOL_REMOTE_ID: _remote_id,
    E.TOOL_FINISHED: _finished,
    E.MODEL_REQUEST_FINISHED: _finished,
    E.OPERATION_CANCEL_REQUESTED: _cancel_requested,
    E.OPERATION_RECONCILED: _settled,
    E.OPERATION_LATE_RESULT: _settled,
}

# The events that are about one operation and change nothing else.
OF_OPERATIONS = frozenset({E.TOOL_REGISTERED, *_CHANGES})

# What of an operation `run.json` tells in this version.
_BRIEF = frozenset(Operation("", "", "").brief())
