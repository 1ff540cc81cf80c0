"""The calls of a reply: recorded with it, and begun in the same step where nobody has to be asked."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Invocation, Limits, ModelReply, ModelRequest, ToolCall, ToolOutcome
from agentrun.records.message import STEER
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import inbox, log
from agentrun.store.disk import data_sync
from agentrun.store.identity import this_actor
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing.fakes import FakeModel, FakeTool
from tests.executor.conftest import drive

E = EventType
THREE = ModelReply("", tuple(ToolCall(f"call-{number}", "export", {"part": number}) for number in range(3)))


class Meanwhile(FakeModel):
    """Somebody else does something to the session while the first request is under way."""

    def __init__(self, act: Callable[[], None], *replies: ModelReply | Exception) -> None:
        super().__init__(*replies)
        self._act = act

    async def complete(self, request: ModelRequest, on_text: Any) -> ModelReply:
        if not self.requests:
            self._act()
        return await super().complete(request, on_text)


def types(session: SessionDir) -> list[str]:
    return [event.type for event in session.run("run-1").all_events()]


def test_writes_that_run_at_the_same_time_last_before_the_first_is_sent_off_and_take_one_sync(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers A33
    session = tree.create_session()
    synced: list[int] = []
    sync = data_sync

    def looked_at(fd: int) -> None:
        sync(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(log, "data_sync", looked_at)
    asked: list[int] = []
    seen: list[tuple[int, int]] = []

    async def look(invocation: Invocation) -> ToolOutcome:
        seen.append((len(synced), session.run("run-1").events.size()))
        return ToolOutcome(OperationStatus.SUCCEEDED, b"done")

    tool = FakeTool("export", look, effect="write")
    model = Meanwhile(lambda: asked.append(len(synced)), THREE, ModelReply("done"))
    assert drive(session, LoopAgent(model, [tool], Limits(), "")) is RunStatus.COMPLETED
    begun = types(session)
    first = begun.index(E.MODEL_REQUEST_FINISHED)
    assert begun[first + 1 : first + 7] == [E.TOOL_REGISTERED] * 3 + [E.TOOL_STARTED] * 3
    assert {count for count, _ in seen} == {asked[0] + 1}
    assert synced[asked[0]] == seen[0][1]


def test_a_steer_that_came_while_the_model_was_asked_is_heard_before_anything_starts(tree: Tree) -> None:
    # covers B16
    session = tree.create_session()

    def steer() -> None:
        with writing(session.another()) as writer:
            inbox.add_input(writer, "run-1", STEER, inbox.Input("not that way", this_actor()))

    tool, model = FakeTool("export", effect="write"), Meanwhile(steer, THREE, ModelReply("as you say"))
    assert drive(session, LoopAgent(model, [tool], Limits(), "")) is RunStatus.COMPLETED
    assert tool.invocations == []
    assert types(session).count(E.TOOL_REGISTERED) == 3
    assert E.TOOL_STARTED not in types(session)
    assert model.requests[-1].last_input == "not that way"


def test_a_cancel_that_came_while_the_model_was_asked_leaves_a_reply_of_which_nothing_is_begun(tree: Tree) -> None:
    # covers A48
    session = tree.create_session()

    def cancel() -> None:
        others = session.another()
        with writing(others) as writer:
            run_dir = others.run("run-1")
            inbox.request_stop(writer, run_dir, actor=this_actor(), reason="test", intent="cancel", via="test")

    tool = FakeTool("export", effect="write")
    assert drive(session, LoopAgent(Meanwhile(cancel, THREE), [tool], Limits(), "")) is RunStatus.CANCELLED
    assert tool.invocations == []
    assert E.TOOL_STARTED not in types(session)
    assert session.run("run-1").load().unresolved_operations == ()


# covers A33; promise 12
@pytest.mark.parametrize("refusal", [errno.EACCES, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_call_is_made_though_the_snapshot_right_before_it_is_refused(tree: Tree, refusal: int) -> None:
    """The log has all that it would tell; what is refused for good the next record says, whatever the error is."""
    session = tree.create_session()
    refused: list[str] = []
    is_refusing = [False]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Every open(2) of the process passes here.
        if is_refusing[0] and event == "open" and str(arguments[0]).endswith(".new-run.json"):
            refused.append(str(arguments[0]))
            raise OSError(refusal, os.strerror(refusal))

    sys.addaudithook(hook)  # cannot be taken away again

    async def call(invocation: Invocation) -> ToolOutcome:
        is_refusing[0] = False
        return ToolOutcome(OperationStatus.SUCCEEDED, b"done")

    tool = FakeTool("export", call, effect="write")
    model = Meanwhile(lambda: is_refusing.__setitem__(0, True), THREE, ModelReply("done"))
    try:
        assert drive(session, LoopAgent(model, [tool], Limits(), "")) is RunStatus.COMPLETED
    finally:
        is_refusing[0] = False
    assert refused
    assert len(tool.invocations) == 3
