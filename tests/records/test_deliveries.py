"""When each message was taken, and where: by any order of the events, and in few bytes."""

import tracemalloc

from agentrun.records.deliveries import Deliveries, Delivery
from agentrun.records.event import Event
from agentrun.records.timeline import deliveries_of
from agentrun.states import EventType

E = EventType


def event(seq: int, kind: EventType, **payload: object) -> Event:
    return Event("s", "run-1", seq, kind, f"at {seq}", 1, payload)


def asked(seq: int, turn: str | None) -> Event:
    return event(seq, E.MODEL_REQUEST_STARTED, operationId=f"op-{seq}", turnId=turn, model="m", attempt=1)


def taken(seq: int, turn: str | None, *seqs: int) -> Event:
    return event(seq, E.INPUT_DELIVERED, messageSeqs=[*seqs], mode="steer", turnId=turn)


def test_a_message_stands_before_the_first_operation_of_its_turn() -> None:
    found = deliveries_of(
        [
            taken(1, "turn-1", 1),
            asked(2, "turn-1"),
            event(3, E.MODEL_REQUEST_FINISHED, operationId="op-2", status="failed", willRetry=True),
            event(4, E.MODEL_REQUEST_STARTED, operationId="op-2", turnId="turn-1", model="m", attempt=2),
            event(5, E.TOOL_REGISTERED, operationId="op-5", turnId="turn-1", toolName="t"),
            event(6, E.RUN_INPUT_RECEIVED, approved=True, messageSeq=4, questionId="q"),
            asked(7, "turn-2"),
            # While its turn was under way, as an agent from outside takes it.
            taken(8, "turn-2", 9, 3),
            event(9, E.RUN_INPUT_RECEIVED, questionId="q", messageSeq=5),
            taken(10, None, 7),
        ]
    )
    assert found.get(1) == Delivery("at 1", "turn-1", 0)
    assert found.get(4) == Delivery("at 6", None, 2)
    assert found.get(3) == found.get(9) == Delivery("at 8", "turn-2", 2)
    assert found.get(7) == Delivery("at 10", None, 3)
    assert [found.get(seq) for seq in (0, 2, 5, 6, 8, 10, -1, 1 << 70)] == [None] * 8


def test_of_one_that_was_taken_twice_the_last_counts_and_any_text_is_kept() -> None:
    found = deliveries_of([taken(1, "turn-\ud800\n", 5, 1 << 40), taken(2, "", 4, 5), taken(3, "turn-3", 5)])
    assert found.get(5) == Delivery("at 3", "turn-3", 0)
    assert found.get(4) == Delivery("at 2", "", 0)
    assert deliveries_of([taken(1, "turn-\ud800\n", 5)]).get(5) == Delivery("at 1", "turn-\ud800\n", 0)
    assert Deliveries().get(1) is None


def test_what_was_taken_alone_costs_some_fifty_bytes() -> None:
    """Covers promise 16."""
    tracemalloc.start()
    try:
        found = Deliveries()
        before = tracemalloc.get_traced_memory()[0]
        for seq in range(1, 4_001):
            found.add(taken(seq, f"turn-{seq}", seq)._replace(at="2026-01-02T03:04:05.678Z"), None)
        assert tracemalloc.get_traced_memory()[0] - before < 80 * 4_000
    finally:
        tracemalloc.stop()
    assert found.get(2_345) == Delivery("2026-01-02T03:04:05.678Z", "turn-2345", 0)
