"""What becomes known of an operation later: it changes that operation and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.lifecycle.settlement import Finding, record_finding
from agentrun.records.operation import Operation, fold_operations
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

E = EventType
O = OperationStatus  # noqa: E741


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    return Tree(str(tmp_path)).create_session()


@pytest.fixture
def executor(session: SessionDir) -> Iterator[Executor]:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    yield executor
    if executor._liveness is not None:
        executor.die()


def tell(executor: Executor, finding: Finding, operation_id: str = "op-2") -> Run:
    with writing(executor.session) as writer:
        return record_finding(writer, executor.run_dir, operation(executor, operation_id), finding)


def operation(executor: Executor, operation_id: str = "op-2") -> Operation:
    listed = fold_operations(executor.run_dir.all_events())
    return next(each for each in listed if each.operation_id == operation_id)


def types(executor: Executor) -> list[str]:
    return [event.type for event in executor.run_dir.all_events()]


def test_a_finding_about_what_is_under_way_is_its_outcome(executor: Executor) -> None:
    # covers A35 A60
    run = tell(executor, Finding(O.SUCCEEDED, "its probe said: succeeded", b"rows"))
    assert run.open_operations == run.unresolved_operations == ()
    known = operation(executor)
    assert (known.status, known.result, known.settled) == (O.SUCCEEDED, "rows", True)
    assert types(executor)[-1] == E.OPERATION_RECONCILED


def test_that_nobody_knows_is_said_once(executor: Executor) -> None:
    run = tell(executor, Finding(O.UNKNOWN, "its probe said: running"))
    assert [each.status for each in run.unresolved_operations] == [O.UNKNOWN]
    before = types(executor)
    tell(executor, Finding(O.UNKNOWN, "its probe said: running"))
    assert types(executor) == before


@pytest.mark.parametrize("end", ["cancelled", "completed"])
def test_a_result_after_the_end_of_the_run_is_late(executor: Executor, end: str) -> None:
    # covers A50 A62 A68
    tell(executor, Finding(O.UNKNOWN, "nobody knows"))
    if end == "completed":
        ended = executor.complete("the report\n")
    else:
        trees.cancel(executor.session, executor.run_dir.run_id)
        ended = executor.wind_down()
    assert [each.operation_id for each in ended.unresolved_operations] == ["op-2"]
    report, messages = executor.run_dir.report(), [each.text for each in executor.session.tail(9)]
    run = tell(executor, Finding(O.SUCCEEDED, "a stale note", b"rows"))
    assert types(executor)[-2:] == [E.RUN_FINISHED, E.OPERATION_LATE_RESULT]
    assert run.status is ended.status is RunStatus(end)
    assert (run.terminal_at, run.report, run.reason) == (ended.terminal_at, ended.report, ended.reason)
    assert run.unresolved_operations == ()
    assert executor.run_dir.snapshot() == run
    assert executor.run_dir.report() == report
    assert [each.text for each in executor.session.tail(9)] == messages
    assert executor.session.active() is None
    assert operation(executor).result == "rows"


@pytest.mark.parametrize("late", [O.SUCCEEDED, O.FAILED, O.CANCELLED])
@pytest.mark.parametrize("known", [O.SUCCEEDED, O.FAILED])
def test_what_is_certain_is_not_overruled(executor: Executor, known: O, late: O) -> None:
    # covers A50 A60
    tell(executor, Finding(known, "its probe", b"first"))
    before = operation(executor)
    run = tell(executor, Finding(late, "a stale note", b"second"))
    assert types(executor)[-1] == E.OPERATION_LATE_RESULT
    assert operation(executor) == before
    assert run.unresolved_operations == run.open_operations == ()


def test_a_confirmed_result_stays_whatever_comes_later(executor: Executor) -> None:
    # covers A36 A60
    finished = {"operationId": "op-2", "status": "succeeded", "result": "rows", "mayHaveEffects": False, "attempt": 1}
    executor.append(E.TOOL_FINISHED, **finished)
    tell(executor, Finding(O.SUCCEEDED, "a stale note", b"other rows"))
    assert operation(executor).result == "rows"
    assert types(executor)[-1] == E.OPERATION_LATE_RESULT


def test_a_late_unknown_is_no_news(executor: Executor) -> None:
    trees.cancel(executor.session, executor.run_dir.run_id)
    executor.wind_down()
    before = types(executor)
    tell(executor, Finding(O.UNKNOWN, "its probe said: running"))
    assert types(executor) == before


def test_a_finding_lasts_and_says_who_found_it(executor: Executor) -> None:
    tell(executor, Finding(O.FAILED, "its probe said: failed"))
    event = list(executor.run_dir.all_events())[-1]
    payload = event.payload
    assert (payload["evidence"], payload["error"], payload["mayHaveEffects"]) == (
        "its probe said: failed",
        "its probe said: failed",
        False,
    )
    assert payload["actor"]["pid"]
