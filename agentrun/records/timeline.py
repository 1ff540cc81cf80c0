"""A run against time: its operations, and what its status was, folded from its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agentrun.errors import TransitionRefused
from agentrun.named import NamedTuple
from agentrun.records.bars import Bar, Bars, Late
from agentrun.records.codec import Doc
from agentrun.records.deliveries import Deliveries
from agentrun.records.event import Event
from agentrun.records.operation import OF_OPERATIONS
from agentrun.records.views import InputState, RunDetail
from agentrun.states import INITIAL, RunStatus, next_status


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

    `deliveries` has when each of the user's messages was taken by the run.
    """

    bars: Iterable[Bar]
    stays: tuple[Stay, ...]
    deliveries: Deliveries

    def input_doc(self, state: InputState) -> Doc:
        """What became of one of the user's messages, for scripts."""
        delivery = self.deliveries.get(state.message.seq)
        return {
            "messageSeq": state.message.seq,
            "mode": state.message.mode,
            "state": state.state,
            "at": state.message.at,
            "deliveredAt": delivery.at if delivery else None,
        }


class RunRecord(NamedTuple):
    """All that is known of a run: what happened in it, and when."""

    detail: RunDetail
    timeline: Timeline


def timeline_of(events: Iterable[Event]) -> Timeline:
    """The timeline of the run whose events these are, oldest first. Of those of its operations all are kept."""
    of_operations: list[Event] = []
    late, stays, deliveries = _looked_through(_kept(events, of_operations))
    return Timeline(tuple(Bars(lambda: of_operations, late.ids)), stays, deliveries)


def timeline_from(events: Callable[[], Iterable[Event]]) -> Timeline:
    """The same without keeping them: whoever goes through the bars reads the events once more, by another call."""
    late, stays, deliveries = _looked_through(events())
    return Timeline(Bars(events, late.ids), stays, deliveries)


def deliveries_of(events: Iterable[Event]) -> Deliveries:
    """When the run whose events these are, oldest first, took each of the user's messages."""
    return _looked_through(events)[2]


def _looked_through(events: Iterable[Event]) -> tuple[Late, tuple[Stay, ...], Deliveries]:
    late, stays, deliveries = Late(), _Stays(), Deliveries()
    for event in events:
        deliveries.add(event, late.add(event))
        stays.add(event)
    return late, tuple(stays.found), deliveries


def _kept(events: Iterable[Event], of_operations: list[Event]) -> Iterator[Event]:
    for event in events:
        if event.type in OF_OPERATIONS:
            of_operations.append(event)
        yield event


class _Stays:
    """What the status was, one after the other; `add` takes all events, oldest first."""

    def __init__(self) -> None:
        self.found: list[Stay] = []
        self._status = INITIAL

    def add(self, event: Event) -> None:
        # (Time begins with the first, whatever that is.)
        if not self.found:
            self.found.append(Stay(self._status, event.at, None))
        if event.type in OF_OPERATIONS:
            return
        try:
            self._status = next_status(self._status, event.type, event.payload.get("terminalStatus"))
        except TransitionRefused:
            return  # as the fold of the run passes over it
        if self._status is not self.found[-1].status:
            self.found[-1] = self.found[-1]._replace(until=event.at)
            self.found.append(Stay(self._status, event.at, None))
