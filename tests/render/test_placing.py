"""What was said stands where it was taken, in whatever order that was, and is read rather than held."""

from collections.abc import Iterator

import pytest

from agentrun.records.event import Event
from agentrun.records.inputs import Conversation, Inputs
from agentrun.records.message import Message
from agentrun.records.operation import Operation, fold_operations
from agentrun.records.run import fold_run
from agentrun.records.timeline import deliveries_of
from agentrun.records.views import RunDetail, RunView
from agentrun.render.placing import steps
from agentrun.states import EventType, RunStatus

COUNT = 900
# The turn that takes each message: the later ones first, some together, and of every third nobody has heard.
TURNS = {seq: 1 + (COUNT - seq) % 40 + 40 * (seq % 2) for seq in range(1, COUNT + 1) if seq % 3}


def events() -> Iterator[Event]:
    payload: dict[str, object] = {"messageSeq": 1, "inputMode": "prompt"}
    yield Event("s", "run-1", 1, EventType.RUN_ACCEPTED, "", 0, payload)
    yield Event("s", "run-1", 2, EventType.RUN_STARTED, "", 1, {})
    number = 2
    for turn in range(1, 81):
        seqs = sorted(seq for seq, taker in TURNS.items() if taker == turn)
        for kind, payload in (
            (EventType.INPUT_DELIVERED, {"messageSeqs": seqs, "mode": "steer", "turnId": f"turn-{turn}"}),
            (EventType.MODEL_REQUEST_STARTED, {"operationId": f"op-{turn}", "turnId": f"turn-{turn}", "model": "m"}),
            (EventType.MODEL_REQUEST_FINISHED, {"operationId": f"op-{turn}", "status": "succeeded"}),
        ):
            number += 1
            yield Event("s", "run-1", number, kind, "", 1, payload)


def said(*seqs: int) -> list[Message]:
    return [Message(seq, "s", "run-1", "user", "steer", f"text {seq}", "") for seq in seqs]


class Log:
    """Messages that are read again by each who goes through them; how many were read in all."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.read = 0

    def since(self, seq: int) -> Iterator[Message]:
        for message in self.messages:
            if message.seq >= seq:
                self.read += 1
                yield message


def shown(log: Log) -> list[int]:
    """The messages in the order in which they are shown, and the operations, as negative numbers."""
    run = fold_run(events())
    messages = Conversation(log.since)
    operations = fold_operations(events())
    view = RunView(run, RunStatus.RUNNING, "alive")
    detail = RunDetail(view, (), messages, Inputs(run, messages, deliveries_of(events())), None)
    found = []
    for step in steps(detail, lambda: operations):
        if isinstance(step, Operation):
            found.append(-int(step.operation_id.removeprefix("op-")))
        else:
            found.append(step.seq if isinstance(step, Message) else step.message.seq)
    return found


def expected(seqs: list[int]) -> list[int]:
    found = []
    for turn in range(1, 81):
        found += [*sorted(seq for seq in seqs if TURNS.get(seq) == turn), -turn]
    return found + sorted(seq for seq in seqs if seq not in TURNS)


def test_each_stands_before_the_turn_that_took_it() -> None:
    log = Log(said(*range(1, COUNT + 1)))
    assert shown(log) == expected([*range(1, COUNT + 1)])
    # Far ones are looked for, and those between are not gone through each time.
    assert log.read < 210 * COUNT


@pytest.mark.parametrize("seqs", [[1, 2, 2, 700, 1 << 40, 1 << 50], [5, 3, 4, 3, 900, 1]])
def test_a_log_whose_numbers_are_twice_there_or_do_not_rise_is_shown_all_the_same(seqs: list[int]) -> None:
    assert shown(Log(said(*seqs))) == expected(seqs)
