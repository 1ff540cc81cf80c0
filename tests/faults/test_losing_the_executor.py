"""A run whose executor is killed or frozen: it is said at once, it can be stopped, and nothing happens twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from history import runs_of
from rig import CONFLICT, DONE, SESSION, WAITING, Stage, killed, until
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, lease="1s")
    assert stage.run("new", "--id", SESSION).code == DONE
    yield stage
    stage.end_executors()


# Where the executor is when it dies: what the run was told, and the event that says how far it has come.
MOMENTS = {
    "waiting for the model": ("stream", "model.request.started"),
    "a tool that reads is running": ("hold", "tool.started"),
    "a tool that writes was started and has no result": ("export", "tool.started"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_lost_run_is_shown_as_such_and_cancelled_by_one_command(moment: str, stage: Stage) -> None:
    text, event = MOMENTS[moment]
    stage.kill(stage.hold(text, event))
    seen = stage.view("run-1")
    assert (seen["status"], seen["executor"]) == ("reconciling", "lost")
    assert stage.send("quick").code == CONFLICT
    _is_cancelled_for_good(stage)


def test_a_run_that_was_being_cancelled_is_wound_down_by_the_next_cancel(stage: Stage) -> None:
    executor = stage.hold("export")
    stage.freeze(executor)
    assert stage.run("cancel", SESSION).code == 6
    stage.kill(executor)
    seen = stage.view("run-1")
    assert (seen["status"], seen["executor"]) == ("cancelling", "lost")
    _is_cancelled_for_good(stage)


def test_a_write_that_lost_its_executor_is_named_wherever_the_end_is_told(stage: Stage) -> None:
    stage.kill(stage.hold("export"))
    stage.run("cancel", SESSION, "--wait")
    (run,) = runs_of(stage.root, SESSION)
    operation = next(name for name, each in run.operations.items() if each.effect == "write")
    assert run.operations[operation].status == "unknown"
    assert run.finished is not None
    assert run.finished["unresolvedOperations"] == [operation]
    assert [each["operationId"] for each in stage.view("run-1")["unresolvedOperations"]] == [operation]
    assert f"unresolved: {operation}" in stage.run("show", SESSION, "--messages").lines()[-1]["text"]


@pytest.mark.parametrize("text", ["whole", "export"])
def test_a_cancel_file_that_nobody_is_there_to_see_is_obeyed_by_the_next_command(text: str, stage: Stage) -> None:
    if text == "whole":
        assert stage.send(text).code == WAITING
    else:
        stage.kill(stage.hold(text))
    (run,) = stage.root.glob(f"accounts/*/sessions/{SESSION}/runs/run-1")
    (run / "cancel").touch(0o600)
    assert stage.view("run-1")["stopAsked"]
    if text == "whole":
        # It may have been meant as the answer, so it begins no run; what is said once the end is known does.
        assert stage.send("quick").code == CONFLICT
        assert [each.status for each in runs_of(stage.root, SESSION)] == ["cancelled"]
    assert stage.send("quick").code == DONE
    assert [each.status for each in runs_of(stage.root, SESSION)] == ["cancelled", "completed"]
    assert stage.processes() == [], "something of the run is alive"
    assert stage.check(settled=True) == []


def test_saying_the_same_again_does_not_take_up_a_lost_run(stage: Stage) -> None:
    """The key gives the first result again and nothing else: what was under way has to be settled first."""
    done = stage.send("export", "--key", "k1", "--detach")
    stage.event("run-1", "tool.started")
    stage.kill(stage.executor("run-1"))
    again = stage.send("export", "--key", "k1", "--detach")
    assert again.lines() == done.lines()
    time.sleep(0.5)  # what should not happen has no moment at which it can be seen
    assert stage.view("run-1")["generation"] == 1
    _is_cancelled_for_good(stage)


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_an_answer_to_a_run_whose_executor_died_while_it_asked_is_executed(stage: Stage) -> None:
    """The question is committed, and the executor died before it could say that it lets the run go."""
    words = ("send", SESSION, "whole")
    stage.keep()
    calls = stage.calls(*words, begin=stage.put_back)
    stage.put_back()
    release = next(call for call in calls if "run.lease_released" in call.text)
    assert killed(stage.interrupted(release, "signal=KILL", *words, text="whole"))
    assert stage.view("run-1")["status"] == "waiting_input"
    assert stage.send("week 12").code == DONE
    assert stage.check(settled=True) == []


def test_a_frozen_executor_without_a_rival_goes_on_in_the_same_generation(stage: Stage) -> None:
    executor = stage.hold("export")
    stage.freeze(executor)
    until(lambda: stage.view("run-1")["executor"] == "frozen", "its lease lapses")
    stage.let_go()
    os.kill(executor, signal.SIGCONT)
    assert stage.run("show", "-f", f"{SESSION}/run-1").code == DONE
    (run,) = runs_of(stage.root, SESSION)
    assert (run.status, run.generation) == ("completed", 1)
    assert stage.check(settled=True) == []


def test_a_frozen_executor_is_not_taken_for_a_dead_one_by_cancel(stage: Stage) -> None:
    executor = stage.hold("hold")
    stage.freeze(executor)
    until(lambda: stage.view("run-1")["executor"] == "frozen", "its lease lapses")
    assert stage.run("cancel", SESSION).code == 6
    os.kill(executor, signal.SIGCONT)
    assert stage.run("cancel", SESSION, "--wait", "--timeout", "30s").code == DONE
    (run,) = runs_of(stage.root, SESSION)
    assert (run.status, run.generation) == ("cancelled", 1)
    assert stage.check(settled=True) == []


def _is_cancelled_for_good(stage: Stage) -> None:
    done = stage.run("cancel", SESSION, "--wait", "--timeout", "30s")
    assert done.code == DONE, done
    assert stage.view("run-1")["status"] == "cancelled"
    assert stage.processes() == [], "something of the run is alive"
    assert stage.send("quick").code == DONE
    assert stage.check(settled=True) == []
