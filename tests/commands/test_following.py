"""Following a run: what happens is told first, and how the run stands is looked at when it may have changed."""

import time
from pathlib import Path

import pytest

from agentrun.commands import show
from agentrun.commands.names import find
from agentrun.commands.show import Follower
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.states import EventType, RunStatus
from agentrun.store import watch
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept, add


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    made = Tree(str(tmp_path), "ann").create_session(session_id="watched")
    executor = Executor(made, accept(made).run_id)
    executor.deliver()
    executor.append(EventType.MODEL_REQUEST_STARTED, operationId="op-1", model="m", attempt=1)
    return executor


def test_an_operation_that_goes_on_is_told_without_a_look_at_the_run(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No second may pass between two lines here; without events of the kernel it would be a tenth of one.
    hour = 3600.0
    monkeypatch.setattr(watch, "SAFETY_LOOK", hour)
    monkeypatch.setattr(watch, "POLL", hour)
    follower = Follower(find(Tree(str(tmp_path), "ann"), "watched/1"))
    try:
        while follower.step():
            pass
        seen = follower.view
        executor.append(EventType.TOOL_REMOTE_ID, operationId="op-1", remoteId="r")
        (event,) = follower.step()
        assert (event.payload["remoteId"], follower.view) == ("r", seen)  # type: ignore[union-attr]
        assert not follower.is_over
        assert not follower.is_to_look_again

        # Once a second it is looked at all the same: an executor that dies says nothing.
        follower._looked = time.monotonic() - hour
        executor.append(EventType.TOOL_REMOTE_ID, operationId="op-1", remoteId="r2")
        assert follower.step()
        assert follower.is_to_look_again
        assert follower.step() == []
        assert not follower.is_to_look_again

        executor.append(EventType.RUN_WAITING_INPUT, questionId="q-1", kind="question", text="which?")
        assert follower.step()
        assert (follower.is_to_look_again, follower.view.status) == (True, RunStatus.RUNNING)
        assert follower.step() == []
        assert follower.view.status is RunStatus.WAITING_INPUT
    finally:
        follower.close()


def test_who_joins_late_is_given_what_there_was_part_by_part(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line once and in order, and the state after all of them. # covers promise 16"""
    monkeypatch.setattr(show, "_AT_ONCE", 3)
    for number in range(8):
        add(executor.session, "run-1", "steer", f"{number}")
        executor.append(EventType.TOOL_REMOTE_ID, operationId="op-1", remoteId=f"{number}")
    executor.append(EventType.RUN_WAITING_INPUT, questionId="q-1", kind="question", text="which?")
    follower = Follower(find(Tree(str(tmp_path), "ann"), "watched/1"))
    found: list[Event | Message] = []
    try:
        while (news := follower.step()) or not found:
            assert len(news) <= 3
            found += news
            assert not follower.is_over
            # Nobody waits for the kernel where there is more.
            assert follower.is_to_look_again
        assert (follower.is_to_look_again, follower.view.status) == (False, RunStatus.WAITING_INPUT)
    finally:
        follower.close()
    events = [each for each in found if isinstance(each, Event)]
    assert [each.seq for each in events] == [*range(1, len(events) + 1)]
    assert [each.text for each in found if isinstance(each, Message)][1:] == [*"01234567"]
    assert events[-1].type == EventType.RUN_WAITING_INPUT
