"""A run against time: its operations, and what its status was, folded from its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentrun.errors import TransitionRefused
from agentrun.named import NamedTuple
from agentrun.records.bars import Bar, Bars, Late
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import OF_OPERATIONS
from agentrun.records.views import InputState, RunDetail
from agentrun.states import INITIAL, EventType, RunStatus, next_status

E = EventType


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

    bars: Iterable[Bar]
    stays: tuple[Stay, ...]
    deliveries: dict[int, str]

    def input_doc(self, state: InputState) -> Doc:
        """What became of one of the user's messages, for scripts."""
        return {
            "messageSeq": state.message.seq,
            "mode": state.message.mode,
            "state": state.state,
            "at": state.message.at,
            "deliveredAt": self.deliveries.get(state.message.seq),
        }


class RunRecord(NamedTuple):
    """All that is known of a run: what happened in it, and when."""

    detail: RunDetail
    timeline: Timeline


def timeline_of(events: Sequence[Event]) -> Timeline:
    """The timeline of the run whose events these are, oldest first."""
    timeline, _ = timeline_from(lambda: events)
    return timeline._replace(bars=tuple(timeline.bars))


def timeline_from(events: Callable[[], Iterable[Event]]) -> tuple[Timeline, list[Event]]:
    """The same without keeping them, and those that are about no operation.

    Whoever goes through the bars reads the events once more, by another call.
    """
    late = Late()
    others: list[Event] = []
    for event in events():
        late.add(event)
        # (Time begins with the first, whatever that is.)
        if event.type not in OF_OPERATIONS or not others:
            others.append(event)
    return Timeline(Bars(events, late.ids), tuple(_stays(others)), _deliveries(others)), others


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
