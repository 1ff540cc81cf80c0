"""Winding down: the facts of each operation first, then the end that the first intent fixed; nothing is made up.

Covers A35, A45, A49, A51, A52, A54, A55, B22, B26, B31.
"""

import pytest

from agentrun.errors import FencedOut, TransitionRefused
from agentrun.records.operation import fold_operations
from agentrun.states import EventType, RunStatus
from agentrun.store import inbox
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from agentrun.testing.trees import Executor

E = EventType


@pytest.fixture
def executor(session: SessionDir) -> Executor:
    """The executor of a run that has had its first reply."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    return executor


def stop(executor: Executor, intent: str) -> None:
    with writing(executor.session) as writer:
        inbox.request_stop(writer, executor.run_dir, actor=trees.ACTOR, reason="r", intent=intent, via="test")


def statuses(executor: Executor) -> dict[str, str]:
    operations = fold_operations(executor.session.another().run("run-1").all_events())
    return {operation.operation_id: operation.status.value for operation in operations}


@pytest.mark.parametrize(
    ("intent", "end"),
    [
        ("cancel", "cancelled"),
        ("interrupt", "cancelled"),
        ("parent", "cancelled"),
        ("signal", "cancelled"),
        ("timeout", "timed_out"),
    ],
)
def test_the_first_intent_fixes_the_end(executor: Executor, intent: str, end: str) -> None:
    stop(executor, intent)
    stop(executor, "timeout" if intent == "cancel" else "cancel")
    executor.append(E.RUN_FAILING, reason="later")
    run = executor.wind_down()
    assert (run.status.value, run.terminal_status, run.reason) == (end, end, "r")
    assert executor.session.active() is None


def test_a_failure_ends_as_failed_whatever_is_asked_afterwards(executor: Executor) -> None:
    executor.append(E.RUN_FAILING, reason="no model")
    stop(executor, "cancel")
    run = executor.wind_down()
    assert (run.status, run.reason) == (RunStatus.FAILED, "no model")
    assert executor.session.tail(1)[0].text.startswith("run-1 failed: no model")


def test_each_open_operation_gets_the_outcome_that_is_true_of_it(executor: Executor) -> None:
    executor.start_tool("op-2", "write")
    executor.append(E.TOOL_REMOTE_ID, operationId="op-2", remoteId="export-7")
    executor.start_tool("op-3", "read")
    names = {"toolCallId": "call-4", "toolName": "mail"}
    executor.append(E.TOOL_REGISTERED, operationId="op-4", turnId="turn-1", effect="write", **names)
    executor.append(E.MODEL_REQUEST_STARTED, operationId="op-5", turnId="turn-2", model="m", attempt=1)
    executor.start_tool("op-6", "write")
    executor.append(E.TOOL_FINISHED, operationId="op-6", status="failed", willRetry=True, error="later", attempt=1)
    stop(executor, "cancel")
    run = executor.wind_down()
    assert statuses(executor) == {
        "op-1": "succeeded",
        "op-2": "unknown",  # a write was dispatched and nobody knows
        "op-3": "cancelled",  # what only looks has done nothing
        "op-4": "skipped",  # it never started, and never will
        "op-5": "cancelled",
        "op-6": "cancelled",  # it failed for now, and is not tried again
    }
    assert [(each.operation_id, each.remote_id) for each in run.unresolved_operations] == [("op-2", "export-7")]
    assert run.open_operations == ()
    text = executor.session.tail(1)[0].text
    assert "unresolved: op-2 export (unknown, remote id export-7)" in text
    events = [event.type for event in executor.session.run("run-1").all_events()]
    assert events[-1] == "run.finished"


def test_nothing_new_is_started_while_it_winds_down(executor: Executor) -> None:
    """A48, B29."""
    stop(executor, "cancel")
    for kind, payload in (
        (E.MODEL_REQUEST_STARTED, {"operationId": "op-9", "model": "m", "attempt": 1}),
        (E.TOOL_REGISTERED, {"operationId": "op-9", "toolName": "mail"}),
        (E.TOOL_STARTED, {"operationId": "op-9", "attempt": 1}),
        (E.INPUT_DELIVERED, {"messageSeqs": [1], "mode": "prompt"}),
        (E.RUN_WAITING_INPUT, {"questionId": "q", "kind": "question"}),
        (E.RUN_FINISHED, {"terminalStatus": "completed"}),
    ):
        with pytest.raises(TransitionRefused):
            executor.append(kind, **payload)
    executor.wind_down()


def test_who_winds_down_a_dead_executor_s_run_needs_its_lease(executor: Executor) -> None:
    stop(executor, "cancel")
    executor.die()
    rival = Executor(executor.session.another(), "run-1")
    with pytest.raises(FencedOut):
        executor.wind_down()
    assert rival.wind_down().status is RunStatus.CANCELLED
    assert rival.lease.generation == 2


def test_winding_down_goes_on_where_a_crash_interrupted_it(executor: Executor) -> None:
    executor.start_tool("op-2", "write")
    executor.start_tool("op-3", "read")
    stop(executor, "cancel")
    executor.append(E.TOOL_FINISHED, operationId="op-2", status="cancelled", mayHaveEffects=True, attempt=1)
    executor.die()
    rival = Executor(executor.session.another(), "run-1")
    run = rival.wind_down()
    assert statuses(executor) == {"op-1": "succeeded", "op-2": "cancelled", "op-3": "cancelled"}
    assert [each.operation_id for each in run.unresolved_operations] == ["op-2"]


def test_a_run_that_nobody_told_to_stop_is_not_wound_down(executor: Executor) -> None:
    before = [event.seq for event in executor.session.run("run-1").all_events()]
    with pytest.raises(TransitionRefused):
        executor.wind_down()
    assert [event.seq for event in executor.session.run("run-1").all_events()] == before
    executor.die()
