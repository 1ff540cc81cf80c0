"""Operations against time, read as they come: the same as folded from all events that are kept."""

import weakref
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentrun.records import bars
from agentrun.records.bars import Bar, Bars, Late
from agentrun.records.event import Event
from agentrun.records.operation import fold_operations

KINDS = [
    ("model.request.started", {"model": "m", "turnId": "t"}),
    ("tool.registered", {"toolName": "query", "effect": "write"}),
    ("tool.started", {}),
    ("tool.progress", {"text": "half"}),
    ("tool.finished", {"status": "failed", "willRetry": True}),
    ("tool.finished", {"status": "failed", "mayHaveEffects": True}),
    ("model.request.finished", {"status": "succeeded", "text": "so"}),
    ("operation.reconciled", {"status": "succeeded"}),
    ("operation.late_result", {"status": "failed", "result": "late"}),
    ("run.waiting_input", {}),
]
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["op-1", "op-2", "op-3"])), max_size=14)


def event(seq: int, kind: str, **payload: Any) -> Event:
    return Event("s", "run-1", seq, kind, f"2026-01-02T03:04:{seq:02d}.000Z", 1, payload)


def read(events: list[Event]) -> Bars:
    late = Late()
    for each in events:
        late.add(each)
    return Bars(lambda: events, late.ids)


@given(steps)
def test_whatever_the_order_the_bars_are_those_of_all_events(
    told: list[tuple[tuple[str, dict[str, Any]], str]],
) -> None:
    """Also of events that no executor writes: late, twice, without a beginning."""
    events = [event(seq, kind, **payload, operationId=name) for seq, ((kind, payload), name) in enumerate(told, 1)]
    expected = []
    for operation in fold_operations(events):
        # Alone, nothing is between its events, and all of them are held.
        own = [each for each in events if each.payload["operationId"] == operation.operation_id]
        growing = bars._Growing()
        for each in own:
            growing.add(each)
        expected.append(Bar(operation, tuple(growing.attempts)))
    found = read(events)
    assert list(found) == expected
    assert list(found) == expected


def test_what_has_ended_is_given_and_let_go_of_while_the_events_are_read() -> None:
    class Text(str):
        """One that a weak reference can watch."""

    texts: list[weakref.ref[Text]] = []

    def events() -> Iterator[Event]:
        for number in range(1, 50):
            named = {"operationId": f"op-{number}"}
            text = Text("x" * 100)
            texts.append(weakref.ref(text))
            yield event(1, "model.request.started", **named, model="m", attempt=1)
            ended = event(1, "model.request.finished", **named, status="succeeded", text=text)
            del text
            yield ended
            del ended
            most.append(sum(each() is not None for each in texts))

    most: list[int] = []
    # One is settled long after: it keeps nobody waiting.
    assert len([bar.operation.operation_id for bar in Bars(events, {"op-3"})]) == 49
    assert max(most) < 5
