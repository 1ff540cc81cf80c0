"""A run of many operations: what it leaves for others to take up, and what it takes no notice of."""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio

from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits, ModelReply, ModelRequest, ToolCall
from agentrun.agent.transcript import Transcript
from agentrun.executor.audience import NoAudience
from agentrun.executor.hold import SNAPSHOT_EVERY, Terms
from agentrun.executor.stretch import StoredStretch
from agentrun.records.message import STEER
from agentrun.records.run import fold_run
from agentrun.states import EventType, RunStatus
from agentrun.store import inbox, layout
from agentrun.store.identity import this_actor
from agentrun.store.locks import take_liveness
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.fakes import FakeModel, FakeTool
from tests.executor.conftest import drive


class Looking(FakeModel):
    """Asks for one call after the other, and looks with each request at what others have to go by."""

    def __init__(self, session: SessionDir, turns: int) -> None:
        calls = [ModelReply("", (ToolCall(f"call-{number}", "query", {}),)) for number in range(turns)]
        super().__init__(*calls, ModelReply("done"))
        self.behind: list[int] = []
        self._session = session

    async def complete(self, request: ModelRequest, on_text: Any) -> ModelReply:
        run_dir = self._session.run("run-1")
        snapshot = run_dir.snapshot()
        assert snapshot is not None
        events = [event for event in run_dir.all_events() if event.seq <= snapshot.applied_seq]
        assert fold_run(events).to_doc() == snapshot.to_doc()
        self.behind.append(run_dir.events.last_seq() - snapshot.applied_seq)
        reply = self._replies.pop(0)
        assert isinstance(reply, ModelReply)
        return reply


def test_whoever_looks_at_a_run_that_goes_on_has_to_take_up_only_what_came_last(tree: Tree) -> None:
    session = tree.create_session()
    model = Looking(session, 60)
    assert drive(session, LoopAgent(model, [FakeTool("query")], Limits(), "")) is RunStatus.COMPLETED
    assert session.run("run-1").events.last_seq() > 2 * SNAPSHOT_EVERY
    # A turn has five events.
    assert SNAPSHOT_EVERY / 2 < max(model.behind) < SNAPSHOT_EVERY + 5


def test_a_snapshot_that_is_kept_near_costs_no_sync_of_its_own(tree: Tree) -> None:
    def syncs(turns: int) -> int:
        """How often a run of so many turns has its events synced."""
        counted: list[object] = []
        session = tree.create_session()
        sys.setprofile(lambda frame, kind, called: counted.append(kind) if called is os.fdatasync else None)
        try:
            drive(session, LoopAgent(Looking(session, turns), [FakeTool("query")], Limits(), ""))
        finally:
            sys.setprofile(None)
        return counted.count("c_call")

    few, many = SNAPSHOT_EVERY // 10, SNAPSHOT_EVERY // 2
    # One for each request of the model; of five events in each turn, 128 come by several times.
    assert syncs(many) - syncs(few) == many - few


def test_each_event_of_a_run_is_taken_up_once_whoever_decides_by_it(tree: Tree) -> None:
    taken: list[object] = []
    session = tree.create_session()
    sys.setprofile(lambda frame, kind, _: taken.append(kind) if frame.f_code is Transcript._take.__code__ else None)
    try:
        drive(session, LoopAgent(Looking(session, 20), [FakeTool("query")], Limits(), ""))
    finally:
        sys.setprofile(None)
    # The end comes when nobody decides any more.
    assert taken.count("call") == session.run("run-1").events.last_seq() - 1


def test_a_turn_of_very_many_calls_keeps_its_snapshot_near_all_the_same(tree: Tree) -> None:
    session = tree.create_session()
    calls = tuple(ToolCall(f"call-{number}", "query", {}) for number in range(SNAPSHOT_EVERY))
    model = Looking(session, 0)
    model._replies.insert(0, ModelReply("", calls))
    limits = Limits(max_tool_calls=2 * SNAPSHOT_EVERY)
    assert drive(session, LoopAgent(model, [FakeTool("query")], limits, "")) is RunStatus.COMPLETED
    # Three events for each call, and none of them synced.
    assert model.behind[-1] < 2 * SNAPSHOT_EVERY


def test_an_executor_takes_notice_of_what_others_write_and_not_of_its_own(tree: Tree) -> None:
    async def look_on() -> None:
        session = tree.create_session()
        run_dir = trees.accept(session)
        liveness = take_liveness(run_dir.directory)
        assert liveness is not None
        terms = Terms(lease=15, timeout=None, answer_timeout=None)
        stretch = StoredStretch(session, run_dir.run_id, liveness, terms, NoAudience())
        stretch.show_messages()
        assert not stretch.may_have_news()
        await stretch.begin_request("fake", turn_id="turn-1", operation_id="op-1", attempt=1, at_rest=False)
        assert not stretch.may_have_news()

        others = session.another()
        with writing(others) as writer:
            inbox.add_input(writer, run_dir.run_id, STEER, inbox.Input("not that way", this_actor()))
        assert stretch.may_have_news()
        stretch.show_messages()
        assert not stretch.may_have_news()

        with writing(others) as writer:
            others.run(run_dir.run_id).append_as_anyone(
                writer, EventType.OPERATION_CANCEL_REQUESTED, {"operationId": "op-1", "actor": this_actor()}
            )
        assert stretch.may_have_news()
        assert not stretch.look()
        assert not stretch.may_have_news()

        # As by `touch`: nothing else tells of it.
        run_dir.directory.replace(layout.CANCEL, b"")
        assert stretch.may_have_news()
        assert stretch.look()
        assert not stretch.may_have_news()
        stretch.release()

    anyio.run(look_on)
