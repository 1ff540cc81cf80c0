"""A run that cannot go on: nothing new is begun, what is under way is ended and recorded, and then it has failed.

# covers A54 A55 A57 A65; contract section 5
"""

from __future__ import annotations

import anyio
import pytest

from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Agent, Invocation, Limits, ModelFailed, ModelReply, Stretch, ToolCall, ToolOutcome
from agentrun.records.operation import fold_operations
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.testing.fakes import FakeModel, FakeTool, calling, forever, scripted
from agentrun.testing.trees import run_path
from tests.executor.conftest import drive

E = EventType
NEW_WORK = {E.MODEL_REQUEST_STARTED, E.TOOL_REGISTERED, E.TOOL_STARTED, E.INPUT_DELIVERED}


class GivesUp:
    """Drives its calls like any agent, until one of them is done: then it cannot go on, and says so or raises."""

    def __init__(self, inner: Agent, failure: Exception | None) -> None:
        self.done = anyio.Event()
        self._inner = inner
        self._failure = failure

    async def run(self, stretch: Stretch) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._inner.run, stretch)
            await self.done.wait()
            while not any(event.type == E.TOOL_FINISHED for event in stretch.events):  # noqa: ASYNC110 - no event of it
                await anyio.sleep(0.001)
            if self._failure:
                raise self._failure
            await stretch.fail("the warehouse is gone")


FAILURES = {
    "it says so": (None, "the warehouse is gone"),
    "it raises": (ValueError("a bug"), "the agent failed: ValueError: a bug"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_what_is_under_way_is_ended_and_recorded_before_the_run_has_failed(session: SessionDir, how: str) -> None:
    failure, reason = FAILURES[how]

    async def work(invocation: Invocation) -> ToolOutcome:
        agent.done.set()
        return ToolOutcome(OperationStatus.SUCCEEDED, b"1204 rows")

    tools = [
        FakeTool("quick", work),
        FakeTool("look", forever),
        FakeTool("export", forever, effect="write", remote_id="export-7"),
        FakeTool("mail", effect="write", approve="ask"),
    ]
    model = scripted(calling("look", "export", "quick", "mail"), {"text": "never"})
    agent = GivesUp(LoopAgent(model, tools, Limits(), ""), failure)
    assert drive(session, agent) is RunStatus.FAILED
    run = session.another().run("run-1")
    events = list(run.all_events())
    kinds = [event.type for event in events]
    at = kinds.index(E.RUN_FAILING)
    assert events[at].payload["reason"] == run.load().reason == reason
    assert not NEW_WORK & set(kinds[at:]), "nothing new is begun"
    assert kinds[-1] == E.RUN_FINISHED
    assert kinds.count(E.RUN_FINISHED) == 1
    ended = {each.name: each for each in fold_operations(events)}
    assert {each.name: each.status.value for each in ended.values() if each.kind == "tool"} == {
        "look": "cancelled",
        "export": "cancelled",
        "quick": "succeeded",
        "mail": "skipped",
    }
    assert ended["quick"].result == "1204 rows", "what was known stays"
    assert ended["look"].result == ended["export"].result == "half"
    assert [each.operation_id for each in run.load().unresolved_operations] == [ended["export"].operation_id]
    assert tools[3].invocations == []
    assert run.report() is None
    assert not run_path(session, "run-1", "report.md").exists()


def test_the_session_takes_the_next_prompt(session: SessionDir) -> None:
    failing = FakeModel(ModelReply("", (ToolCall("c", "quick", {}),)), ModelFailed("HTTP 401: no"))
    assert drive(session, LoopAgent(failing, [FakeTool("quick")], Limits(), "")) is RunStatus.FAILED
    told = session.tail(1)[0]
    assert (told.role, told.mode, told.run_id) == ("system", "ended", "run-1")
    assert told.text == "run-1 failed: the model fake failed: HTTP 401: no"
    assert session.active() is None
    assert drive(session, LoopAgent(FakeModel(ModelReply("all is well")), [], Limits(), "")) is RunStatus.COMPLETED
    assert session.another().run("run-2").report() == "all is well"
    assert session.another().run("run-1").load().status is RunStatus.FAILED


class SaysWhatNoRecordHolds:
    """Foreign code, whose usage has a number without an end."""

    name = "odd"

    async def complete(self, request: object, on_text: object) -> ModelReply:
        return ModelReply("done", usage={"thinkingTokens": float("nan")})


# covers A55 A65
def test_an_agent_that_says_what_no_record_can_hold_fails_its_run_and_not_its_executor(session: SessionDir) -> None:
    assert drive(session, LoopAgent(SaysWhatNoRecordHolds(), [], Limits(), "")) is RunStatus.FAILED
    run = session.another().run("run-1").load()
    assert "cannot be stored as JSON" in (run.reason or "")
    assert not run.open_operations
