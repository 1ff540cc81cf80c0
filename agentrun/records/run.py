"""One run as its events tell it: `run.json` is this fold written down, and can always be made again.

Of most runs that are looked at the snapshot tells all: what folds events, and what is open, is loaded where it is met.
"""

from __future__ import annotations

from agentrun.errors import TransitionRefused
from agentrun.named import NamedTuple
from agentrun.records.codec import FORMAT_VERSION, Doc, Seqs, without
from agentrun.records.event import Event
from agentrun.records.fields import RUN, check_fields
from agentrun.states import INITIAL, TERMINAL, EventType, RunStatus, next_status, status_needed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentrun.records.operation import Operation

# Everything that is counted against a budget. Tokens are those that the model reported; null means that none did.
NO_USAGE: Doc = {
    "turns": 0,
    "modelRequests": 0,
    "toolCalls": 0,
    "checks": 0,
    "retries": 0,
    "inputTokens": None,
    "outputTokens": None,
    "costUsd": None,
    "executingMs": 0,
}
# What each event changes, once one was folded.
_changes: dict[str, Callable[[Run, Event], Run]] | None = None


class Run(NamedTuple):
    """A run. Lists of operations hold what is open or unresolved, never what is done: the fold stays small.

    `applied_seq` is the last event that it contains. `waiting_for` is the question that is open, or None.
    `children` are the sessions in which calls of it were about to begin runs: `{operationId sessionId afterSeq}`.
    `survivors` names what is alive of a run that winds down and could not be ended: processes, and runs that it began.
    `force` says that a stop was asked for that waits for nobody: what is alive is killed at once.
    `attempts` counts how often its execution was begun or taken over, durably before each time.
    `fenced` is the owner of an executor elsewhere that had the executor's lock when the last lease was taken without
    it: that lock then says nothing about who drives the run.
    `whereabouts` are the former lease owners, with their `generation`, of whose processes some may be alive where they
    were: in a container, it may be, that not everybody sees.
    `unread_events` counts the events that are damaged and that no snapshot had told of before: what they began is not
    known.
    """

    session_id: str
    run_id: str
    account_id: str
    status: RunStatus
    generation: int = 0
    input_mode: str = "prompt"
    agent: str | None = None
    message_seq: int = 0
    created_at: str = ""
    started_at: str | None = None
    updated_at: str = ""
    timeout_at: str | None = None
    cancel_requested_at: str | None = None
    ending: RunStatus | None = None
    force: bool = False
    terminal_status: RunStatus | None = None
    terminal_at: str | None = None
    reason: str | None = None
    lease_owner: Doc | None = None
    lease_expires_at: str | None = None
    fenced: Doc | None = None
    references: tuple[str, ...] = ()
    continues: str | None = None
    children: tuple[Doc, ...] = ()
    parent_run: Doc | None = None
    config: Doc | None = None
    timeout: float | None = None
    waiting_for: Doc | None = None
    usage: Doc = NO_USAGE
    report: Doc | None = None
    open_operations: tuple[Operation, ...] = ()
    unresolved_operations: tuple[Operation, ...] = ()
    delivered_inputs: Seqs = Seqs()
    returned_inputs: Seqs | tuple[int, ...] = ()
    survivors: tuple[str, ...] = ()
    whereabouts: tuple[Doc, ...] = ()
    attempts: int = 0
    applied_seq: int = 0
    unread_events: int = 0
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    @property
    def is_over(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in TERMINAL

    @property
    def next_attempt(self) -> int:
        """The number of the attempt that a claim begins: going on after an answer is part of the one before."""
        is_answered = self.status is RunStatus.RUNNING and self.lease_owner is None
        return self.attempts if is_answered else self.attempts + 1

    def lost_in(self) -> tuple[Doc, ...]:
        """The lease owner as it goes into `whereabouts` once it is lost; nothing if the lease was let go."""
        return ({**self.lease_owner, "generation": self.generation},) if self.lease_owner else ()

    def runs_among(self, names: Iterable[str]) -> list[str]:
        """Those of `names`, as `survivors` has them, that are runs which this one began."""
        sessions = {each.get("sessionId") for each in self.children}
        return [name for name in names if name.partition("/")[0] in sessions]

    def apply(self, event: Event) -> Run:
        """The run after `event`. Raises TransitionRefused if the event must not stand here."""
        status = next_status(self.status, event.type, event.payload.get("terminalStatus"))
        change = (_changes or _load_changes()).get(event.type)
        run = change(self, event) if change else self
        return run._replace(
            status=status,
            generation=max(self.generation, event.generation),
            updated_at=event.at,
            applied_seq=event.seq,
        )

    def fold(self, events: Iterable[Event]) -> Run:
        """The run after all of `events` that come later than what it contains.

        An event that the table refuses is passed over: the first terminal record is final, whatever stands behind it.
        Only behind events that cannot be read it tells of the status that the run must have had.
        """
        run = self
        for event in events:
            if event.seq > run.applied_seq:
                run = run._after(event)
        return run

    def _after(self, event: Event) -> Run:
        unread = event.seq - self.applied_seq - 1
        run = self._replace(unread_events=self.unread_events + unread) if unread else self
        try:
            return run.apply(event)
        except TransitionRefused:
            end = event.payload.get("terminalStatus")
            needed = status_needed(event.type, end) if run.unread_events and not run.is_over else None
            if needed is None:
                return run._replace(applied_seq=event.seq)
            waiting = run.waiting_for if needed is RunStatus.WAITING_INPUT else None
            began = run.started_at or event.at
            return run._replace(status=needed, started_at=began, waiting_for=waiting).apply(event)

    def known(self) -> Run:
        """The same without what other versions have put into its snapshot: no event tells of that."""
        return self._replace(extra={}, **self._folded({}, {}))

    def with_unknown_of(self, other: Run) -> Run:
        """The same with what other versions have put into the snapshot that `other` is."""
        unknown = {name: value for name, value in other.usage.items() if name not in NO_USAGE}
        listed = (*other.open_operations, *other.unresolved_operations)
        return self._replace(
            extra=other.extra, **self._folded(unknown, {each.operation_id: each.extra for each in listed})
        )

    def _folded(self, usage: Doc, operations: dict[str, Doc]) -> Doc:
        """What is folded of parts that may have unknown fields of their own, with these instead."""

        def kept(listed: tuple[Operation, ...]) -> tuple[Operation, ...]:
            return tuple(each._replace(extra=operations.get(each.operation_id, {})) for each in listed)

        return {
            "usage": {name: value for name, value in self.usage.items() if name in NO_USAGE} | usage,
            "open_operations": kept(self.open_operations),
            "unresolved_operations": kept(self.unresolved_operations),
        }

    def to_doc(self) -> Doc:
        """The fields of `run.json` in the order they are stored."""
        return {
            "formatVersion": FORMAT_VERSION,
            "runId": self.run_id,
            "sessionId": self.session_id,
            "accountId": self.account_id,
            "status": self.status.value,
            "generation": self.generation,
            "inputMode": self.input_mode,
            "agent": self.agent,
            "messageSeq": self.message_seq,
            "createdAt": self.created_at,
            "startedAt": self.started_at,
            "updatedAt": self.updated_at,
            "timeoutAt": self.timeout_at,
            "cancelRequestedAt": self.cancel_requested_at,
            "ending": self.ending.value if self.ending else None,
            "force": self.force,
            "terminalStatus": self.terminal_status.value if self.terminal_status else None,
            "terminalAt": self.terminal_at,
            "reason": self.reason,
            "leaseOwner": self.lease_owner,
            "leaseExpiresAt": self.lease_expires_at,
            "fenced": self.fenced,
            "references": list(self.references),
            "continues": self.continues,
            "parentRun": self.parent_run,
            "children": list(self.children),
            "config": self.config,
            "timeout": self.timeout,
            "waitingFor": self.waiting_for,
            "usage": self.usage,
            "report": self.report,
            **self._kept(),
        } | self.extra

    def tells_as(self, other: Run) -> bool:
        """Whether both would be stored the same."""
        inputs = (self.delivered_inputs, self.returned_inputs), (other.delivered_inputs, other.returned_inputs)
        # Apart from the rest: as lists they take many times the room.
        rest = [each._replace(delivered_inputs=Seqs(), returned_inputs=()).to_doc() for each in (self, other)]
        return inputs[0] == inputs[1] and rest[0] == rest[1]

    def _kept(self) -> Doc:
        """What is listed of operations and inputs, and how far the fold has come."""
        return {
            "openOperations": [operation.brief() for operation in self.open_operations],
            "unresolvedOperations": [operation.brief() for operation in self.unresolved_operations],
            "deliveredInputs": list(self.delivered_inputs),
            "returnedInputs": list(self.returned_inputs),
            "survivors": list(self.survivors),
            "attempts": self.attempts,
            "appliedSeq": self.applied_seq,
        } | self._exceptional()

    def _exceptional(self) -> Doc:
        """What hardly any run has."""
        unread: Doc = {"unreadEvents": self.unread_events} if self.unread_events else {}
        return unread | ({"whereabouts": list(self.whereabouts)} if self.whereabouts else {})

    @classmethod
    def from_doc(cls, doc: Doc, apart: Doc | None = None) -> Run:
        """The run in a decoded `run.json`, with what of it came `apart`. Raises ValueError if it is no snapshot."""
        check_fields(doc, RUN, "snapshot of a run")
        try:
            return _run_in(doc | apart if apart else doc)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no snapshot of a run: {error!r}") from error


def _load_changes() -> dict[str, Callable[[Run, Event], Run]]:
    global _changes
    from agentrun.records.changes import CHANGES

    _changes = CHANGES
    return CHANGES


def status_in(text: object) -> RunStatus | None:
    """The status that a field names, if it names one."""
    return RunStatus(str(text)) if text else None


def _operations_in(briefs: list[Doc]) -> tuple[Operation, ...]:
    if not briefs:
        return ()
    from agentrun.records.operation import Operation

    return tuple(Operation.from_brief(brief) for brief in briefs)


def _run_in(doc: Doc) -> Run:
    return Run(
        session_id=doc["sessionId"],
        run_id=doc["runId"],
        account_id=doc["accountId"],
        status=RunStatus(doc["status"]),
        generation=doc["generation"],
        input_mode=doc["inputMode"],
        agent=doc["agent"],
        message_seq=doc["messageSeq"],
        created_at=doc["createdAt"],
        started_at=doc["startedAt"],
        updated_at=doc["updatedAt"],
        timeout_at=doc["timeoutAt"],
        cancel_requested_at=doc["cancelRequestedAt"],
        ending=status_in(doc["ending"]),
        force=doc.get("force", False),
        terminal_status=status_in(doc["terminalStatus"]),
        terminal_at=doc["terminalAt"],
        reason=doc["reason"],
        lease_owner=doc["leaseOwner"],
        lease_expires_at=doc["leaseExpiresAt"],
        fenced=doc.get("fenced"),
        references=tuple(doc["references"]),
        continues=doc["continues"],
        parent_run=doc["parentRun"],
        children=tuple(doc.get("children", ())),
        config=doc["config"],
        timeout=doc["timeout"],
        waiting_for=doc["waitingFor"],
        usage=NO_USAGE | doc["usage"],
        report=doc["report"],
        **_kept_in(doc),
        extra=without(doc, _FIELDS),
    )


def _kept_in(doc: Doc) -> Doc:
    """What `Run._kept` has written."""
    return {
        "open_operations": _operations_in(doc["openOperations"]),
        "unresolved_operations": _operations_in(doc["unresolvedOperations"]),
        "delivered_inputs": _seqs(doc["deliveredInputs"]),
        "returned_inputs": _seqs(doc["returnedInputs"]),
        "survivors": tuple(doc.get("survivors", ())),
        "attempts": doc["attempts"],
        "applied_seq": doc["appliedSeq"],
        "unread_events": doc.get("unreadEvents", 0),
        "whereabouts": tuple(doc.get("whereabouts", ())),
    }


def _seqs(numbers: Seqs | list[int]) -> Seqs:
    return numbers if isinstance(numbers, Seqs) else Seqs(numbers)


def accepted_run(event: Event) -> Run:
    """The run that `event`, a `run.accepted`, begins. Raises ValueError if it is none."""
    if event.type != EventType.RUN_ACCEPTED:
        raise ValueError(f"a run begins with run.accepted, not with {event.type}")
    payload = event.payload
    timeout = payload.get("timeout")
    return Run(
        session_id=event.session_id,
        run_id=event.run_id,
        account_id=str(payload.get("accountId")),
        status=INITIAL,
        input_mode=str(payload.get("inputMode")),
        agent=payload.get("agent"),
        message_seq=payload.get("messageSeq", 0),
        created_at=event.at,
        updated_at=event.at,
        references=tuple(payload.get("references") or ()),
        continues=payload.get("continues"),
        parent_run=payload.get("parentRun"),
        config=payload.get("config"),
        timeout=timeout if isinstance(timeout, int | float) else None,
        applied_seq=event.seq,
    )


def fold_run(events: Iterable[Event]) -> Run:
    """The run that `events`, all from the first, tell. Raises ValueError without a `run.accepted` at the start."""
    remaining = iter(events)
    first = next(remaining, None)
    if first is None:
        raise ValueError("no events")
    return accepted_run(first).fold(remaining)


_FIELDS = frozenset(Run("", "", "", RunStatus.QUEUED, unread_events=1, whereabouts=({},)).to_doc())
