"""What a document shows of a long run: the newest operations, as the whole record has them, and no more is kept.

Covers A15, promise 16.
"""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.show import ALL, run_record, run_timeline
from agentrun.commands.whole import whole
from agentrun.records.timeline import Timeline
from agentrun.records.views import RunDetail
from agentrun.render.html import page
from agentrun.states import EventType
from agentrun.store.redo import recording
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    """A run of 60 operations with large results, the last of them under way and waiting for an approval."""
    made = Tree(str(tmp_path), "ann").create_session(session_id="long")
    executor = Executor(made, accept(made).run_id)
    executor.deliver()
    for number in range(60):
        named = {"operationId": f"op-{number}"}
        executor.append(EventType.MODEL_REQUEST_STARTED, **named, turnId="turn-1", model="m", attempt=1)
        if number < 59:
            text = f"{number} " + "x" * 20_000
            executor.append(EventType.MODEL_REQUEST_FINISHED, **named, status="succeeded", text=text, attempt=1)
    executor.append(EventType.TOOL_REMOTE_ID, operationId="op-3", remoteId="late")
    return made


def facts(timeline: Timeline, detail: RunDetail) -> tuple[object, ...]:
    """What it tells, to be compared."""
    return tuple(timeline.bars), timeline.stays, [timeline.deliveries.get(each.seq) for each in detail.messages]


def test_the_newest_operations_are_those_of_the_whole_record(session: SessionDir) -> None:
    run_dir = session.run("run-1")
    whole = run_record(session, run_dir)
    assert [each.operation_id for each in whole.detail.operations] == [f"op-{number}" for number in range(60)]
    bars = tuple(whole.timeline.bars)
    for tail in (1, 20, 60, 100):
        part = run_record(session, run_dir, tail)
        assert part.detail.operations == whole.detail.operations[-tail:]
        assert facts(part.timeline, whole.detail) == (bars[-tail:], *facts(whole.timeline, whole.detail)[1:])
        assert part.detail.earlier == max(60 - tail, 0)
        assert ([*part.detail.inputs], part.detail.view) == ([*whole.detail.inputs], whole.detail.view)
    last = next(event.seq for event in run_dir.all_events() if event.payload.get("operationId") == "op-50")
    for tail, expected in ((ALL, [3, *range(50, 60)]), (4, range(56, 60))):
        since = run_record(session, run_dir, tail, last)
        assert [each.operation_id for each in since.detail.operations] == [f"op-{number}" for number in expected]
        assert since.detail.earlier == (0 if tail == ALL else 7)


def test_what_is_not_shown_is_not_kept(session: SessionDir) -> None:
    def peak(tail: int) -> int:
        run_dir = session.run("run-1")
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert len(run_record(session, run_dir, tail).detail.operations) == min(tail, 60)
        return tracemalloc.get_traced_memory()[1] - before

    run_record(session, session.run("run-1"), 2)
    tracemalloc.start()
    try:
        assert peak(2) < peak(ALL) / 2
    finally:
        tracemalloc.stop()


def test_against_time_each_operation_is_read_and_let_go(session: SessionDir) -> None:
    """The same bars, one of which was told of after its end, and as they stood when they were asked for."""
    whole = run_record(session, session.run("run-1"))
    found = run_timeline(session, session.run("run-1"))
    with recording(session) as writer:
        payload = {"operationId": "op-59", "status": "succeeded"}
        session.run("run-1").append_as_anyone(writer, EventType.OPERATION_LATE_RESULT, payload)
    assert facts(found.timeline, found.detail) == facts(whole.timeline, whole.detail)
    said = found.detail._replace(messages=tuple(found.detail.messages), inputs=whole.detail.inputs)
    assert said == whole.detail._replace(operations=())
    assert [*found.detail.inputs] == [*whole.detail.inputs]
    last = run_timeline(session, session.run("run-1"), 2).timeline.bars
    assert [bar.operation.operation_id for bar in last] == ["op-58", "op-59"]

    tracemalloc.start()
    try:
        # Of the 1.2 MB that the operations say.
        for _ in run_timeline(session, session.run("run-1")).timeline.bars:
            pass
        assert tracemalloc.get_traced_memory()[1] < 600_000
    finally:
        tracemalloc.stop()


def test_a_page_is_written_operation_by_operation(tmp_path: Path, session: SessionDir) -> None:
    """What is said stands where it stood, before the operations of its turn. # covers A41"""
    place = Place(Tree(str(tmp_path), "ann"), None, {})

    def pieces() -> Iterator[str]:
        return page(*whole(place, Target(session, "run-1"), []), 0.0)

    text = "".join(pieces())
    places = [text.index(f'id="run-1-{name}"') for name in ("m1", *(f"op-{number}" for number in range(60)))]
    assert places == sorted(places)
    assert all(f"<p>{number} {'x' * 20_000}</p>" in text for number in range(59))
    tracemalloc.start()
    try:
        # Of the 1.2 MB that the operations say, and of as much that is written.
        for _ in pieces():
            pass
        assert tracemalloc.get_traced_memory()[1] < 700_000
    finally:
        tracemalloc.stop()
