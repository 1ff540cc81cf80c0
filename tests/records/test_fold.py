"""A run is the fold of its events: from the start, from any snapshot, and whatever strange events stand in between.

Covers A14, A19, A39, A49-A52, A62, A68, B8, B13, B42, B45, B46, B60, B63 and promises 2 and 5.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.records.codec import Doc, decode, encode_document, encode_line
from agentrun.records.event import Event
from agentrun.records.operation import fold_operations
from agentrun.records.run import Run, accepted_run, fold_run
from agentrun.states import FACTS, TERMINAL, TRANSITIONS, EventType, OperationStatus, RunStatus

E = EventType
OPERATIONS = st.sampled_from(["op-1", "op-2", "op-3"])
STATUSES = st.sampled_from([*OperationStatus, "exploded"]).map(str)
ATTEMPT = st.integers(1, 3)
MAYBE_TEXT = st.none() | st.sampled_from(["because", "\u2028"])
COUNTS = st.none() | st.integers(0, 99)

OWNERS = st.sampled_from([{"pid": 1}, {"pid": 2, "bootId": "b", "pidNamespace": 7}, {"pid": 3, "bootId": "b"}])


def payload(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Doc]:
    """Payloads in which any field may be missing, as in those of other versions."""
    return st.fixed_dictionaries({}, optional=fields)


def always(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Doc]:
    return st.fixed_dictionaries(fields)


PAYLOADS: dict[EventType, st.SearchStrategy[Doc]] = {
    E.RUN_ACCEPTED: payload(messageSeq=st.integers(1, 9), agent=MAYBE_TEXT),
    E.RUN_LEASE_ACQUIRED: payload(owner=OWNERS, attempt=ATTEMPT, expiresAt=st.just("2026")),
    E.RUN_LEASE_RELEASED: payload(
        reason=MAYBE_TEXT, executingMs=st.integers(0, 99), whereabouts=st.none() | st.lists(OWNERS, max_size=2),
    ),
    E.RUN_STARTED: payload(timeoutAt=st.none() | st.just("2026"), inputMode=st.just("prompt")),
    E.INPUT_DELIVERED: payload(messageSeqs=st.lists(st.integers(1, 9), max_size=3), turnId=st.just("turn-1")),
    E.MODEL_REQUEST_STARTED: always(operationId=OPERATIONS, model=st.just("m"), attempt=ATTEMPT),
    E.MODEL_REQUEST_FINISHED: payload(
        operationId=OPERATIONS, status=STATUSES, willRetry=st.booleans(), attempt=ATTEMPT,
        usage=st.none() | always(inputTokens=COUNTS, outputTokens=COUNTS, costUsd=st.none() | st.floats(0, 9)),
    ),
    E.TOOL_REGISTERED: always(
        operationId=OPERATIONS, toolCallId=st.just("call-1"), toolName=st.just("export"), arguments=st.just({"a": 1}),
        effect=st.sampled_from(["read", "write"]),
    ),
    E.TOOL_STARTED: payload(operationId=OPERATIONS, attempt=ATTEMPT),
    E.TOOL_PROGRESS: payload(operationId=OPERATIONS, text=st.just("3 of 10")),
    E.TOOL_REMOTE_ID: payload(operationId=OPERATIONS, remoteId=st.just("export-7")),
    E.TOOL_FINISHED: payload(
        operationId=OPERATIONS, status=STATUSES, result=st.just("rows"), error=MAYBE_TEXT, willRetry=st.booleans(),
        mayHaveEffects=st.booleans(), attempt=ATTEMPT,
    ),
    E.RUN_WAITING_INPUT: payload(
        questionId=st.just("q"), kind=st.sampled_from(["question", "approval"]), operationId=OPERATIONS,
        deadline=MAYBE_TEXT, executingMs=st.integers(0, 99),
    ),
    E.RUN_INPUT_RECEIVED: payload(questionId=st.just("q"), messageSeq=st.integers(1, 9), timeoutAt=MAYBE_TEXT),
    E.RUN_COMPACTING: payload(covers=st.none()),
    E.RUN_COMPACTED: payload(covers=st.none()),
    E.RUN_CHILD_ANNOUNCED: payload(
        operationId=OPERATIONS, sessionId=st.sampled_from(["s2", "s3"]), afterSeq=st.integers(0, 9),
    ),
    E.OPERATION_CANCEL_REQUESTED: payload(operationId=OPERATIONS, reason=MAYBE_TEXT, force=st.booleans()),
    E.RUN_CANCEL_REQUESTED: payload(
        intent=st.sampled_from(["cancel", "timeout", "interrupt", "parent", "signal", "whim"]), reason=MAYBE_TEXT,
        force=st.booleans(), gone=st.booleans(),
    ),
    E.RUN_FAILING: payload(reason=MAYBE_TEXT),
    E.RUN_SURVIVORS_FOUND: payload(survivors=st.lists(st.sampled_from(["sleep 60 (pid 7)", "s2/run-1"]), max_size=2)),
    E.RUN_RECONCILING: payload(reason=MAYBE_TEXT, operationIds=st.just([])),
    E.OPERATION_RECONCILED: payload(
        operationId=OPERATIONS, status=STATUSES, result=st.just("rows"), error=MAYBE_TEXT, mayHaveEffects=st.booleans(),
    ),
    E.OPERATION_LATE_RESULT: payload(operationId=OPERATIONS, status=STATUSES, result=st.just("rows")),
    E.RUN_FINISHED: always(
        terminalStatus=st.sampled_from(["completed", "failed", "cancelled", "timed_out", "sideways"]),
        reason=MAYBE_TEXT, report=st.none() | st.just({"sha256": "0" * 64, "bytes": 1}),
        returnedInputs=st.lists(st.integers(1, 9), max_size=2), executingMs=st.integers(0, 99),
    ),
}  # fmt: skip
FIRST = Event("s1", "run-1", 1, E.RUN_ACCEPTED.value, "t1", 0, {"messageSeq": 1, "accountId": "ann", "timeout": 60})


@st.composite
def histories(draw: st.DrawFn, longest: int = 25) -> list[Event]:
    """Histories of a run: mostly events that the table allows where they stand, now and then one that it refuses."""
    events = [FIRST]
    run = accepted_run(FIRST)
    generation = 0
    for seq in range(2, draw(st.integers(1, longest)) + 2):
        fitting = [*TRANSITIONS[run.status], *(event for event, where in FACTS.items() if run.status in where)]
        kind = draw(st.sampled_from(fitting if draw(st.integers(0, 9)) else list(PAYLOADS)))
        generation += kind is E.RUN_LEASE_ACQUIRED
        event = Event("s1", "run-1", seq, kind.value, f"t{seq}", generation, draw(PAYLOADS[kind]))
        events.append(event)
        run = run.fold([event])
    return events


@pytest.mark.slow
@given(histories())
@settings(max_examples=60)
def test_a_snapshot_and_the_events_behind_it_tell_the_same_as_all_events(events: list[Event]) -> None:
    whole = fold_run(events).to_doc()
    for split in range(1, len(events) + 1):
        stored = encode_document(fold_run(events[:split]).to_doc())
        snapshot = Run.from_doc(decode(stored))
        assert encode_document(snapshot.to_doc()) == stored
        assert snapshot.fold(events[split:]).to_doc() == whole
        # A reader may meet events that the snapshot contains already.
        assert snapshot.fold(events).to_doc() == whole


@pytest.mark.slow
@given(histories())
@settings(max_examples=60)
def test_what_a_run_lists_of_operations_is_what_their_own_fold_says(events: list[Event]) -> None:
    # An operation that ended and is registered again is another one under the same id, which nobody writes.
    seen: set[str] = set()
    kept = [event for event in events if event.type not in (E.TOOL_REGISTERED, E.MODEL_REQUEST_STARTED)]
    for event in events:
        if event.type == E.TOOL_REGISTERED and event.payload["operationId"] not in seen:
            seen.add(event.payload["operationId"])
            kept.append(event)
    kept.sort(key=lambda event: event.seq)
    run = fold_run(kept)
    recorded = _not_refused(kept)
    operations = fold_operations(recorded)
    assert {o.operation_id for o in run.open_operations} == {o.operation_id for o in operations if o.is_open}
    assert {o.operation_id for o in run.unresolved_operations} == {
        o.operation_id for o in operations if o.is_unresolved
    }


def _not_refused(events: list[Event]) -> list[Event]:
    """The events that the table allows where they stand."""
    run, kept = accepted_run(events[0]), events[:1]
    for event in events[1:]:
        after = run.fold([event])
        if after != run._replace(applied_seq=event.seq):
            kept.append(event)
        run = after
    return kept


@pytest.mark.slow
@given(histories(), st.lists(st.sampled_from(list(E)), min_size=1, max_size=5), st.data())
@settings(max_examples=60)
def test_nothing_behind_the_first_terminal_record_changes_how_the_run_ended(
    events: list[Event], later: list[EventType], data: st.DataObject
) -> None:
    run = fold_run(events)
    if not run.is_over:
        run = run.fold([_event(run.applied_seq + 1, E.RUN_CANCEL_REQUESTED, {})])
        run = run.fold(_event(run.applied_seq + 1, E.RUN_FINISHED, {"terminalStatus": end}) for end in sorted(TERMINAL))
    after = run
    for kind in later:
        after = after.fold([_event(after.applied_seq + 1, kind, data.draw(PAYLOADS[kind]))])
    assert run.status in TERMINAL
    # What becomes known of an operation is added to that operation, and is all that is added.
    moving = {"unresolvedOperations", "openOperations", "updatedAt", "appliedSeq"}
    assert _without(after.to_doc(), moving) == _without(run.to_doc(), moving)
    assert after.applied_seq == run.applied_seq + len(later)
    assert len(after.unresolved_operations) <= len(run.unresolved_operations) + len(run.open_operations)


@pytest.mark.slow
@given(histories())
@settings(max_examples=60)
def test_whatever_happened_the_record_of_a_run_holds_together(events: list[Event]) -> None:
    run = fold_run(events)
    assert run.is_over == (run.terminal_status is not None) == (run.terminal_at is not None)
    if run.is_over:
        assert run.terminal_status == run.status
        assert run.lease_owner is None
        assert run.waiting_for is None
    assert (run.status is RunStatus.CANCELLING) <= (run.ending is not None)
    assert (run.status is RunStatus.WAITING_INPUT) == (run.waiting_for is not None)
    assert run.applied_seq == events[-1].seq
    assert run.generation == max(event.generation for event in _not_refused(events))
    assert all(count is None or count >= 0 for count in run.usage.values())
    shown = {operation.operation_id for operation in run.open_operations}
    assert not shown & {operation.operation_id for operation in run.unresolved_operations}


JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.none() | st.text(max_size=1))
JUNK = JUNK | st.dictionaries(st.text(max_size=2), st.none(), max_size=1) | st.lists(st.lists(st.none()))
FIELDS = sorted(
    {"messageSeqs", "messageSeq", "operationId", "attempt", "status", "usage", "report", "returnedInputs", "owner",
     "references", "timeout", "timeoutAt", "terminalStatus", "reason", "executingMs", "questionId", "kind", "intent",
     "deadline", "remoteId", "willRetry", "mayHaveEffects", "config", "parentRun", "accountId", "inputMode", "effect"}
)  # fmt: skip


@pytest.mark.slow
@given(histories(), st.data())
@settings(max_examples=80)
def test_a_field_of_a_wrong_type_is_a_damaged_line_or_harmless_and_hides_nothing(
    events: list[Event], data: st.DataObject
) -> None:
    """Promise 2: one bad line must not make a session unusable."""
    spoilt = data.draw(st.integers(0, len(events) - 1))
    fields = data.draw(st.dictionaries(st.sampled_from(FIELDS), JUNK, min_size=1, max_size=3))
    read = []
    for number, event in enumerate(events):
        doc = event.to_doc()
        if number == spoilt:
            doc["payload"] = {**doc["payload"], **fields}
        try:
            read.append(Event.from_doc(decode(encode_line(doc))))
        except ValueError:
            continue
    if not read or read[0].type != E.RUN_ACCEPTED:
        return
    run = fold_run(read)
    fold_operations(read)
    assert run.applied_seq == read[-1].seq
    assert encode_document(Run.from_doc(decode(encode_document(run.to_doc()))).to_doc()) == encode_document(
        run.to_doc()
    )


@pytest.mark.slow
@given(histories(), st.data())
@settings(max_examples=80)
def test_a_snapshot_with_a_wrong_field_is_none_or_can_be_gone_on_from(events: list[Event], data: st.DataObject) -> None:
    doc = fold_run(events[: len(events) // 2 + 1]).to_doc()
    doc[data.draw(st.sampled_from(sorted(set(doc) - {"appliedSeq"})))] = data.draw(JUNK)
    try:
        snapshot = Run.from_doc(decode(encode_document(doc)))
    except ValueError:
        return
    run = snapshot.fold(events)
    assert run.applied_seq == events[-1].seq
    encode_document(run.to_doc())


@pytest.mark.parametrize("kind", [kind for kind in E if kind is not E.RUN_ACCEPTED])
def test_a_run_begins_with_its_acceptance(kind: EventType) -> None:
    with pytest.raises(ValueError, match=r"run\.accepted"):
        fold_run([_event(1, kind, {"terminalStatus": "completed"})])


def test_no_events_are_no_run() -> None:
    with pytest.raises(ValueError, match="no events"):
        fold_run([])


def test_the_first_intent_fixes_the_end_and_later_ones_are_only_recorded() -> None:
    run = fold_run([FIRST, _event(2, E.RUN_STARTED, {})])
    timed_out = run.fold([_event(3, E.RUN_CANCEL_REQUESTED, {"intent": "timeout", "reason": "one"})])
    later = timed_out.fold(
        [
            _event(4, E.RUN_CANCEL_REQUESTED, {"intent": "cancel", "reason": "two"}),
            _event(5, E.RUN_FAILING, {"reason": "three"}),
        ]
    )
    assert (later.ending, later.reason, later.cancel_requested_at) == (RunStatus.TIMED_OUT, "one", "t3")
    assert later.applied_seq == 5


def test_a_model_request_that_is_tried_again_under_its_id_ends_when_it_succeeds() -> None:
    """A9: a retry is the same operation, in the same run."""
    run = fold_run([FIRST, _event(2, E.RUN_STARTED, {})])
    started: Doc = {"operationId": "op-1", "turnId": "turn-1", "model": "m"}
    run = run.fold(
        [
            _event(3, E.MODEL_REQUEST_STARTED, {**started, "attempt": 1}),
            _event(4, E.MODEL_REQUEST_FINISHED, {"operationId": "op-1", "status": "failed", "willRetry": True}),
            _event(5, E.MODEL_REQUEST_STARTED, {**started, "attempt": 2}),
        ]
    )
    assert [(each.status, each.attempt) for each in run.open_operations] == [("running", 2)]
    run = run.fold([_event(6, E.MODEL_REQUEST_FINISHED, {"operationId": "op-1", "status": "succeeded", "attempt": 2})])
    assert run.open_operations == run.unresolved_operations == ()
    assert run.usage["retries"] == 1
    assert run.usage["turns"] == 1
    assert run.usage["modelRequests"] == 2


@pytest.mark.parametrize("settled_by", [E.OPERATION_RECONCILED, E.OPERATION_LATE_RESULT])
@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_a_write_that_may_have_had_effects_stays_unresolved_until_someone_says_how_it_ended(
    settled_by: EventType, status: str
) -> None:
    run = fold_run([FIRST, _event(2, E.RUN_STARTED, {}), *_started_write(3)])
    killed = {"operationId": "op-2", "status": "cancelled", "mayHaveEffects": True, "attempt": 1}
    run = run.fold([_event(5, E.TOOL_FINISHED, killed)])
    assert [each.operation_id for each in run.unresolved_operations] == ["op-2"]
    unsure = run.fold([_event(6, settled_by, {"operationId": "op-2", "status": "unknown"})])
    assert [each.operation_id for each in unsure.unresolved_operations] == ["op-2"]
    settled = unsure.fold([_event(7, settled_by, {"operationId": "op-2", "status": status})])
    assert settled.unresolved_operations == ()


@pytest.mark.parametrize("status", ["pending", "running", "skipped", "exploded", "", None, 7])
def test_a_finding_that_is_no_outcome_makes_nothing_certain(status: object) -> None:
    """A probe may say `running`; that settles nothing."""
    events = [FIRST, _event(2, E.RUN_STARTED, {}), *_started_write(3)]
    found: Doc = {"operationId": "op-2", "status": status}
    run = fold_run([*events, _event(5, E.OPERATION_RECONCILED, found)])
    listed = [*run.open_operations, *run.unresolved_operations]
    assert [each.operation_id for each in listed] == ["op-2"]
    assert not listed[0].settled


def _started_write(seq: int) -> list[Event]:
    names: Doc = {"operationId": "op-2", "toolCallId": "call-1", "toolName": "export"}
    return [
        _event(seq, E.TOOL_REGISTERED, {**names, "effect": "write"}),
        _event(seq + 1, E.TOOL_STARTED, {**names, "attempt": 1}),
    ]


def _event(seq: int, kind: EventType, fields: Doc) -> Event:
    return Event("s1", "run-1", seq, kind.value, f"t{seq}", 0, fields)


def _without(doc: Doc, names: set[str]) -> Doc:
    return {name: value for name, value in doc.items() if name not in names}


def test_costs_are_summed_where_they_are_known_and_null_where_none_is() -> None:
    def costs(*usages: Doc | None) -> Any:
        events = [_event(1, E.RUN_ACCEPTED, {"messageSeq": 1}), _event(2, E.RUN_STARTED, {})]
        for number, usage in enumerate(usages):
            operation = {"operationId": f"op-{number}", "attempt": 1}
            events.append(_event(len(events) + 1, E.MODEL_REQUEST_STARTED, operation | {"model": "m"}))
            finished = operation | {"status": "succeeded", "usage": usage}
            events.append(_event(len(events) + 1, E.MODEL_REQUEST_FINISHED, finished))
        return fold_run(events).usage["costUsd"]

    assert costs(None, {"inputTokens": 3, "costUsd": None}) is None
    assert costs({"costUsd": 0.1}, {"costUsd": None}, {"costUsd": 0.2}) == 0.3
    assert costs({"costUsd": True}, {"costUsd": "much"}) is None


def of(boot: str | None, namespace: int | None, pid: int = 1) -> Doc:
    return {"user": "ann", "host": "tea", "pid": pid, "bootId": boot, "pidNamespace": namespace}


def whereabouts(*events: tuple[EventType, int, Doc]) -> list[tuple[Any, Any]]:
    """Namespace and generation of each place in which something may be alive after these events of a started run."""
    begin = [
        Event("s", "run-1", 1, E.RUN_ACCEPTED.value, "at", 0, {}),
        Event("s", "run-1", 2, E.RUN_LEASE_ACQUIRED.value, "at", 1, {"owner": of("b", 7)}),
        Event("s", "run-1", 3, E.RUN_STARTED.value, "at", 1, {}),
    ]
    told = [Event("s", "run-1", 4 + n, kind.value, "at", each, said) for n, (kind, each, said) in enumerate(events)]
    return [(each["pidNamespace"], each["generation"]) for each in fold_run([*begin, *told]).whereabouts]


# covers A51
def test_where_something_may_be_alive_follows_from_who_had_the_run_and_how_it_was_left() -> None:
    taken, left, stop = E.RUN_LEASE_ACQUIRED, E.RUN_LEASE_RELEASED, E.RUN_CANCEL_REQUESTED

    def by(boot: str | None, namespace: int | None) -> Doc:
        return {"owner": of(boot, namespace)}

    assert whereabouts() == []
    assert whereabouts((taken, 2, by("b", 7))) == [], "who has it sees its own container"
    assert whereabouts((taken, 2, by("b", 8))) == [(7, 1)]
    assert whereabouts((taken, 2, by("c", 8))) == [], "nothing outlives a boot"
    assert whereabouts((taken, 2, by(None, None))) == []
    assert whereabouts((taken, 2, by("b", 8)), (taken, 3, by("b", 9))) == [(7, 1), (8, 2)]
    assert whereabouts((taken, 2, by("b", 8)), (taken, 3, by("b", 7))) == [(8, 2)]
    assert whereabouts((taken, 2, by("b", 8)), (taken, 3, by("b", 7)), (taken, 4, by("b", 9))) == [(8, 2), (7, 3)]
    assert whereabouts((left, 1, {}), (taken, 2, by("b", 8))) == [], "it was left in order"
    some = {"whereabouts": [{**of("b", 7), "generation": 1}]}
    assert whereabouts((left, 1, some), (taken, 2, by("b", 8))) == [(7, 1)]
    assert whereabouts((taken, 2, by("b", 8)), (left, 2, {})) == [(7, 1)]
    assert whereabouts((taken, 2, by("b", 8)), (left, 2, {"whereabouts": []})) == []
    assert whereabouts((taken, 2, by("b", 8)), (stop, 2, {"gone": True})) == []
    assert whereabouts((taken, 2, by("b", 8)), (stop, 2, {"force": True})) == [(7, 1)]
    ended = {"terminalStatus": "cancelled"}
    assert whereabouts((taken, 2, by("b", 8)), (stop, 2, {}), (E.RUN_FINISHED, 2, ended)) == []


# covers A51
def test_a_user_namespace_of_its_own_is_a_place_of_its_own() -> None:
    """From there nobody looks into the processes beside it; from beside it all are seen."""

    def by(apart: int | None, namespace: int = 7) -> tuple[EventType, int, Doc]:
        owner = of("b", namespace) | ({"userNamespace": apart} if apart is not None else {})
        return (E.RUN_LEASE_ACQUIRED, 0, {"owner": owner})

    def after(*taken: tuple[EventType, int, Doc]) -> list[tuple[Any, Any]]:
        return whereabouts(*[(kind, 2 + n, said) for n, (kind, _, said) in enumerate(taken)])

    assert after(by(5)) == [(7, 1)]
    assert after(by(5), by(None)) == []
    assert after(by(5), by(5)) == [(7, 1)]
    assert after(by(5), by(6)) == [(7, 1), (7, 2)]
    assert after(by(5), by(6), by(None, 8), by(None)) == [(8, 4)]
