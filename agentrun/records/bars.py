"""The operations of a run against time: each with its attempts, folded from the run's events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import Operation, operation_of
from agentrun.records.seen import Seen
from agentrun.states import EventType, OperationStatus

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

    def to_doc(self) -> Doc:
        """For scripts."""
        operation = self.operation
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
            "attempts": [attempt.to_doc() for attempt in self.attempts],
        }


class Late:
    """Which operations the events tell of after their end; `add` takes all of them, oldest first."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._under_way: set[str] = set()
        self._ended = Seen()

    def add(self, event: Event) -> Operation | None:
        """Takes one event; returns the operation that it registers, if it does."""
        operation_id = event.payload.get("operationId")
        if not isinstance(operation_id, str):
            return None
        # Two that `Seen` takes for one are only looked at twice.
        if operation_id in self._ended:
            self.ids.add(operation_id)
        elif _is_end(event):
            self._ended.add(operation_id)
            self._under_way.discard(operation_id)
        elif operation_id not in self._under_way and (registered := operation_of(event)) is not None:
            self._under_way.add(operation_id)
            return registered
        return None


class Bars:
    """The bars of a run in the order in which its operations were registered, as often as somebody goes through them.

    Each time the events are read again, and only operations that are under way are held. What came of those that are
    `late` is found before: they have an end, and events behind it.
    """

    def __init__(self, events: Callable[[], Iterable[Event]], late: set[str]) -> None:
        self._events = events
        self._late = late
        self._whole: dict[str, Bar] | None = None

    def __iter__(self) -> Iterator[Bar]:
        whole = dict(self._whole_ones())
        under_way: dict[str, _Growing] = {}
        registered: deque[_Growing] = deque()
        for event in self._events():
            operation_id = event.payload.get("operationId")
            if not isinstance(operation_id, str):
                continue
            if operation_id in self._late:
                if operation_id in whole and operation_of(event):
                    registered.append(_Growing(whole.pop(operation_id)))
            else:
                growing = under_way.get(operation_id) or under_way.setdefault(operation_id, _Growing())
                if growing.add(event):
                    registered.append(growing)
                if growing.has_ended:
                    del under_way[operation_id]
            while registered and registered[0].has_ended:
                yield registered.popleft().bar()
        yield from (each.bar() for each in registered)

    def _whole_ones(self) -> dict[str, Bar]:
        """The late ones by their ids; those that were never registered have no bar."""
        if self._whole is None:
            found: dict[str, _Growing] = {}
            for event in self._events() if self._late else ():
                operation_id = event.payload.get("operationId")
                if isinstance(operation_id, str) and operation_id in self._late:
                    found.setdefault(operation_id, _Growing()).add(event)
            self._whole = {name: each.bar() for name, each in found.items() if each.operation}
        return self._whole


class _Growing:
    """A bar as far as the events have come; `has_ended` says that no more of them is to come."""

    def __init__(self, whole: Bar | None = None) -> None:
        self.operation = whole.operation if whole else None
        self.attempts = list(whole.attempts) if whole else []
        self.has_ended = whole is not None

    def add(self, event: Event) -> bool:
        """Takes an event of the operation; returns whether it registers it."""
        was_known = self.operation is not None
        self.operation = self.operation.apply(event) if self.operation else operation_of(event)
        if event.type in _BEGINS:
            self.attempts.append(Attempt(event.at, None, OperationStatus.RUNNING))
        elif event.type in _ENDS and self.attempts and self.attempts[-1].finished_at is None:
            self.attempts[-1] = self.attempts[-1]._replace(finished_at=event.at, status=_outcome(event))
        self.has_ended = _is_end(event)
        return not was_known and self.operation is not None

    def bar(self) -> Bar:
        assert self.operation  # only what was registered is asked for
        return Bar(self.operation, tuple(self.attempts))


def _is_end(event: Event) -> bool:
    return event.type in _ENDS and not event.payload.get("willRetry")


def _outcome(event: Event) -> OperationStatus:
    try:
        return OperationStatus(str(event.payload.get("status")))
    except ValueError:
        return OperationStatus.UNKNOWN
