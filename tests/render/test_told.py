"""What a live view holds of a long run: what is open, and the newest of what is over or waits.

Covers promise 16.
"""

import tracemalloc
from collections.abc import Iterator

import pytest

from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.render.theme import Screen
from agentrun.render.told import Told
from agentrun.states import EventType

E = EventType
SCREEN = Screen(80, colour=False, unicode=True, interactive=False)
COUNT = 1_200


def event(seq: int, kind: EventType, **payload: object) -> Event:
    return Event("s", "run-1", seq, kind, "2026-01-02T03:04:05.678Z", 1, payload)


def said(seq: int) -> Message:
    return Message(seq, "s", "run-1", "user", "steer", f"text {seq} " + "x" * 5_000, "2026-01-02T03:04:05.678Z")


def begun() -> Told:
    told = Told()
    told.event(event(1, E.RUN_ACCEPTED, messageSeq=1, inputMode="prompt"), SCREEN)
    told.event(event(2, E.RUN_STARTED), SCREEN)
    return told


def operations() -> Iterator[Event]:
    for number in range(COUNT):
        named = {"operationId": f"op-{number}", "attempt": 1}
        yield event(3 + 2 * number, E.MODEL_REQUEST_STARTED, **named, turnId=f"turn-{number}", model="m")
        text = f"{number} " + "x" * 5_000
        yield event(4 + 2 * number, E.MODEL_REQUEST_FINISHED, **named, status="succeeded", text=text)


def test_a_view_of_much_holds_little_and_loses_no_word() -> None:
    told = begun()
    tracemalloc.start()
    try:
        for number in range(1, COUNT + 1):
            assert told.message(said(number), SCREEN) == []
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # The newest thousand of them.
    assert held < 1_100 * 6_000
    assert [each.seq for each in told.waiting_inputs][-2:] == [COUNT - 1, COUNT]
    seqs = [1, 2, COUNT]
    taken = event(3, E.INPUT_DELIVERED, messageSeqs=seqs, mode="steer", turnId="turn-1")
    assert told.forgotten(taken) == [1, 2]
    for seq in (1, 2):
        assert told.message(said(seq), SCREEN) == []
    assert told.forgotten(taken) == []
    lines = told.event(taken, SCREEN)
    assert [line.split()[1] for line in lines if line.startswith("›")] == ["#1", "#2", f"#{COUNT}"]
    assert [line.split()[:2] for line in lines if line.startswith("  text")] == [["text", str(seq)] for seq in seqs]
    # What is seen once more changes nothing.
    assert told.message(said(1), SCREEN) == []
    assert told.forgotten(taken) == []
    assert 1 not in [each.seq for each in told.waiting_inputs]


@pytest.mark.slow
def test_what_is_over_is_let_go_and_what_is_to_be_settled_is_not() -> None:
    told = begun()
    named = {"operationId": "op-write", "toolCallId": "c", "toolName": "export"}
    told.event(event(3, E.TOOL_REGISTERED, **named, turnId="turn-0", effect="write"), SCREEN)
    told.event(event(4, E.TOOL_STARTED, **named, attempt=1), SCREEN)
    told.event(event(5, E.TOOL_FINISHED, operationId="op-write", status="unknown", mayHaveEffects=True), SCREEN)
    tracemalloc.start()
    try:
        for each in operations():
            told.event(each._replace(seq=each.seq + 10), SCREEN)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1_100 * 7_000
    assert told.open_operations == []
    found = event(10_000, E.OPERATION_RECONCILED, operationId="op-write", status="succeeded", evidence="the table")
    assert "export" in told.event(found, SCREEN)[0]
