"""A run against time, folded from its events: attempts, statuses, deliveries; also of damaged and of lost runs."""

from typing import Any

from agentrun.records.deliveries import Delivery
from agentrun.records.event import Event
from agentrun.records.timeline import Stay, timeline_of
from agentrun.states import OperationStatus, RunStatus


def events(*rows: tuple[str, dict[str, Any]]) -> list[Event]:
    """Events a second apart."""
    return [
        Event("s", "run-1", seq, kind, f"2026-01-02T03:04:{seq:02d}.000Z", 1, payload)
        for seq, (kind, payload) in enumerate(rows, 1)
    ]


def at(seq: int) -> str:
    return f"2026-01-02T03:04:{seq:02d}.000Z"


TOOL = {"operationId": "op-1", "toolCallId": "c", "toolName": "query"}
STARTED = ("run.started", {"inputMode": "prompt", "accountId": "ann"})


def test_each_attempt_has_its_time_and_its_outcome() -> None:
    told = events(
        ("run.accepted", {}),
        STARTED,
        ("tool.registered", TOOL),
        ("tool.started", TOOL | {"attempt": 1}),
        ("tool.finished", TOOL | {"status": "failed", "willRetry": True}),
        ("tool.started", TOOL | {"attempt": 2}),
        ("tool.progress", TOOL | {"text": "half"}),
        ("tool.finished", TOOL | {"status": "succeeded"}),
    )
    (bar,) = timeline_of(told).bars
    assert [(each.started_at, each.finished_at, each.status) for each in bar.attempts] == [
        (at(4), at(5), OperationStatus.FAILED),
        (at(6), at(8), OperationStatus.SUCCEEDED),
    ]


def test_an_attempt_without_an_end_is_open_and_a_call_that_never_began_has_none() -> None:
    told = events(("run.accepted", {}), STARTED, ("tool.registered", TOOL))
    assert timeline_of(told).bars[0].attempts == ()
    told = events(("run.accepted", {}), STARTED, ("tool.registered", TOOL), ("tool.started", TOOL))
    assert timeline_of(told).bars[0].attempts[0].finished_at is None


def test_the_statuses_follow_one_another_without_a_gap() -> None:
    told = events(
        ("run.accepted", {}),
        STARTED,
        ("run.waiting_input", {"questionId": "q"}),
        ("run.started", {}),  # refused there by the table: passed over
        ("run.input_received", {"messageSeq": 2, "approved": True}),
        ("run.finished", {"terminalStatus": "completed"}),
        ("operation.late_result", {"operationId": "op-9", "status": "succeeded"}),
    )
    timeline = timeline_of(told)
    assert timeline.stays == (
        Stay(RunStatus.QUEUED, at(1), at(2)),
        Stay(RunStatus.RUNNING, at(2), at(3)),
        Stay(RunStatus.WAITING_INPUT, at(3), at(5)),
        Stay(RunStatus.RUNNING, at(5), at(6)),
        Stay(RunStatus.COMPLETED, at(6), None),
    )
    assert timeline.deliveries.get(2) == Delivery(at(5), None, 0)
    assert timeline.deliveries.get(1) is timeline.deliveries.get(3) is None


def test_an_outcome_of_another_version_and_a_log_without_its_beginning_are_shown_all_the_same() -> None:
    told = events(("tool.registered", TOOL), ("tool.started", TOOL), ("tool.finished", TOOL | {"status": "exploded"}))
    (bar,) = timeline_of(told).bars
    assert bar.attempts[0].status is OperationStatus.UNKNOWN
    assert timeline_of([]).stays == ()
