"""The table of states against the contract's own words: every status with every event, nothing left out.

Covers A31, A39, A49, A53, A62, A68, B15, B20-B25, B29, B46, B53 and B60.
"""

import pytest

from agentrun.errors import TransitionRefused
from agentrun.states import (
    ENDING_OF_INTENT,
    FACTS,
    INITIAL,
    OPEN,
    OPEN_OPERATION,
    OPERATION_TRANSITIONS,
    TERMINAL,
    TRANSITIONS,
    WINDING_DOWN_WORDS,
    EventType,
    OperationStatus,
    RunStatus,
    next_status,
)

# The arrows of the contract (section 3), written down once more by hand: from, event, to.
ARROWS = """
queued         run.started           running
queued         run.finished          cancelled
running        run.finished          completed
running        run.waiting_input     waiting_input
waiting_input  run.input_received    running
running        run.compacting        compacting
compacting     run.compacted         running
running        run.cancel_requested  cancelling
waiting_input  run.cancel_requested  cancelling
compacting     run.cancel_requested  cancelling
reconciling    run.cancel_requested  cancelling
running        run.failing           cancelling
waiting_input  run.failing           cancelling
compacting     run.failing           cancelling
reconciling    run.failing           cancelling
cancelling     run.finished          cancelled timed_out failed
running        run.reconciling       reconciling
waiting_input  run.reconciling       reconciling
compacting     run.reconciling       reconciling
reconciling    run.started           running
"""

# Events that are recorded without moving the run: event, where.
RECORDED = """
run.lease_acquired      queued running waiting_input compacting reconciling cancelling
run.lease_released      queued running waiting_input compacting reconciling cancelling
input.delivered         running
model.request.started   running compacting
model.request.finished  running waiting_input compacting reconciling cancelling
tool.registered         running
tool.started            running
tool.progress           running waiting_input compacting reconciling cancelling
tool.remote_id          running waiting_input compacting reconciling cancelling
tool.finished           running waiting_input compacting reconciling cancelling
run.child_announced     running waiting_input compacting
run.cancel_requested    queued cancelling
run.failing             cancelling
run.survivors_found     cancelling
run.reconciling         reconciling
operation.cancel_requested  running waiting_input compacting reconciling cancelling
operation.reconciled    everywhere
operation.late_result   everywhere
"""

MOVES = {(start, event): tuple(ends) for start, event, *ends in map(str.split, ARROWS.strip().splitlines())}
EVERYWHERE = " ".join(RunStatus)
STAYS = {
    event: frozenset(where)
    for event, *where in map(str.split, RECORDED.replace("everywhere", EVERYWHERE).strip().splitlines())
}
# From, to.
OPERATION_ARROWS = """
pending    running skipped cancelled
running    pending succeeded failed cancelled timed_out unknown
unknown    succeeded failed cancelled
cancelled  succeeded failed cancelled
timed_out  succeeded failed cancelled
failed     succeeded failed cancelled
succeeded
skipped
"""
OPERATION_MOVES = {start: frozenset(ends) for start, *ends in map(str.split, OPERATION_ARROWS.strip().splitlines())}


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("event", list(EventType))
def test_each_event_in_each_status_does_what_the_contract_says(status: RunStatus, event: EventType) -> None:
    expected = MOVES.get((status.value, event.value), ())
    for end in (None, *RunStatus):
        allowed: str | None = None
        if event is EventType.RUN_FINISHED:
            allowed = end if end in expected else None
        elif expected:
            allowed = expected[0]
        elif status in STAYS.get(event.value, ()):
            allowed = status
        if allowed is None:
            with pytest.raises(TransitionRefused, match=str(status.value)):
                next_status(status, event, end)
        else:
            assert next_status(status, event, end) == allowed
            assert isinstance(next_status(status, event, end), RunStatus)


def test_the_tables_hold_the_arrows_and_nothing_else() -> None:
    table = {
        (status.value, event.value): tuple(target.value for target in targets)
        for status, row in TRANSITIONS.items()
        for event, targets in row.items()
    }
    assert table == MOVES
    assert {event.value: where for event, where in FACTS.items()} == STAYS


def test_a_status_with_an_empty_row_is_terminal_and_the_others_are_open() -> None:
    assert {"completed", "failed", "cancelled", "timed_out"} == TERMINAL
    assert set(RunStatus) == TERMINAL | OPEN
    assert not TERMINAL & OPEN
    assert set(TRANSITIONS) == set(RunStatus)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_nothing_moves_a_run_that_is_over(status: RunStatus) -> None:
    for event in EventType:
        for end in (None, *RunStatus):
            try:
                assert next_status(status, event, end) is status
            except TransitionRefused:
                continue
            assert event in (EventType.OPERATION_RECONCILED, EventType.OPERATION_LATE_RESULT)


@pytest.mark.parametrize("status", list(RunStatus))
def test_an_event_of_a_newer_version_changes_nothing(status: RunStatus) -> None:
    assert next_status(status, "run.teleported", "completed") is status


@pytest.mark.parametrize("end", ["", "done", "COMPLETED", "running", None])
def test_a_run_cannot_end_as_something_that_is_no_end(end: str | None) -> None:
    for status in RunStatus:
        with pytest.raises(TransitionRefused):
            next_status(status, EventType.RUN_FINISHED, end)


def test_every_status_can_be_reached_and_every_open_one_can_end() -> None:
    reached, new = set(), {INITIAL}
    while new:
        reached |= new
        new = {t for s in new for targets in TRANSITIONS[s].values() for t in targets} - reached
    assert reached == set(RunStatus)
    for status in OPEN:
        found, new = set(), {status}
        while new:
            found |= new
            new = {t for s in new for targets in TRANSITIONS[s].values() for t in targets} - found
        assert found & TERMINAL


def test_each_intent_leads_to_an_end_that_winding_down_can_reach() -> None:
    ends = TRANSITIONS[RunStatus.CANCELLING][EventType.RUN_FINISHED]
    assert set(ENDING_OF_INTENT) == {"cancel", "timeout", "interrupt", "parent", "signal", "failure"}
    assert set(ENDING_OF_INTENT.values()) == set(ends) == set(WINDING_DOWN_WORDS)


def test_an_operation_moves_as_written_and_what_succeeded_stays() -> None:
    table = {s.value: frozenset(t.value for t in targets) for s, targets in OPERATION_TRANSITIONS.items()}
    assert table == OPERATION_MOVES
    assert set(OPERATION_TRANSITIONS) == set(OperationStatus)
    assert {"pending", "running"} == OPEN_OPERATION
    # Nothing that has an outcome comes to be open again.
    for status in set(OperationStatus) - OPEN_OPERATION:
        assert not OPERATION_TRANSITIONS[status] & OPEN_OPERATION
