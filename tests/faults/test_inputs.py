"""What the user says reaches the run it was said to, once, however that run ends; or the command refuses it.

# covers A5 A75 B16 B17 B18 B58; case C12 C13 C14
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from history import runs_of
from rig import CONFLICT, DONE, SESSION, Stage, inputs_of, killed, until
from system_calls import why_not

Doc = dict[str, Any]

pytestmark = pytest.mark.slow

# Both kinds together make thirty.
ROUNDS = 15


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    assert stage.run("new", "--id", SESSION).code == DONE
    yield stage
    stage.end_executors()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["steer", "follow-up"])
def test_what_comes_around_the_end_is_in_that_run_or_refused(kind: str, stage: Stage) -> None:
    accepted = 0
    for number in range(1, ROUNDS + 1):
        run_id, text = f"run-{number}", f"only new, {number}"
        words = ("steer", f"{SESSION}/{run_id}", text)
        if kind == "follow-up":
            words = ("send", SESSION, text, "--mode", "follow-up", "--detach")
        gate = stage.base / f"gate-{number}"
        saying = stage.ready(*words, gate=gate)
        # On a machine that is so busy that all came too late, the rest is said to runs that take their time.
        is_slow = number > ROUNDS // 2 and not accepted
        run = stage.start("send", SESSION, "unhurried" if is_slow else "brief")
        stage.event(run_id, "model.request.started")
        # A brief reply takes 60 ms, and the end comes right after it.
        time.sleep(0.12 * number / ROUNDS)
        gate.touch()
        done = stage.end(saying, text)
        assert done.code in (DONE, CONFLICT), done
        assert run.wait(30) == DONE
        accepted += done.code == DONE
        if done.code == DONE:
            assert done.lines()[0]["runId"] == run_id
        told = [message["runId"] for message in inputs_of(stage) if message["text"] == text]
        assert told == ([run_id] if done.code == DONE else [])
    assert stage.check(settled=True) == []
    assert accepted > 0, "all came too late: this has shown nothing"


def _completes(stage: Stage, executor: int) -> None:
    stage.let_go()


def _is_cancelled(stage: Stage, executor: int) -> None:
    stage.run("cancel", SESSION)


def _is_terminated(stage: Stage, executor: int) -> None:
    """A detached executor hands its run over; nobody takes it up, so it is cancelled."""
    os.kill(executor, signal.SIGTERM)
    until(lambda: stage.view("run-1")["status"] == "reconciling", "it is handed over")
    stage.run("cancel", SESSION, "--wait")


def _is_killed(stage: Stage, executor: int) -> None:
    stage.kill(executor)
    stage.run("cancel", SESSION, "--wait")


def _is_killed_and_recovered(stage: Stage, executor: int) -> None:
    """It goes on in another process, which delivers what waits."""
    stage.kill(executor)
    _recover(stage)


def _is_terminated_and_recovered(stage: Stage, executor: int) -> None:
    os.kill(executor, signal.SIGTERM)
    until(lambda: stage.view("run-1")["status"] == "reconciling", "it is handed over")
    _recover(stage)


def _recover(stage: Stage) -> None:
    stage.let_go()
    done = stage.run("recover")
    assert done.code == DONE, done


ENDS: dict[str, tuple[str, Callable[[Stage, int], None], str]] = {
    "completes": ("hold", _completes, "completed"),
    "fails": ("doomed", _completes, "failed"),
    "is cancelled": ("hold", _is_cancelled, "cancelled"),
    "is told to go": ("hold", _is_terminated, "cancelled"),
    "is killed": ("hold", _is_killed, "cancelled"),
    "is told to go, and goes on elsewhere": ("hold", _is_terminated_and_recovered, "completed"),
    "is killed, and goes on elsewhere": ("hold", _is_killed_and_recovered, "completed"),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_waits_when_a_run_ends_is_delivered_or_returned_in_order(end: str, stage: Stage) -> None:
    text, ending, status = ENDS[end]
    executor = stage.hold(text)
    said = [stage.send(f"and also {number}", "--mode", "follow-up", "--detach").code for number in range(5)]
    assert said == [DONE] * 5
    ending(stage, executor)
    until(lambda: stage.view("run-1")["terminalStatus"] == status, f"it ends as {status}")
    until(lambda: not stage.check(settled=True), "what follows from its end is done")
    (run,) = runs_of(stage.root, SESSION)
    assert run.finished is not None
    waiting = [message["seq"] for message in inputs_of(stage) if message["mode"] == "follow-up"]
    reached = [seq for seq in run.delivered if seq in waiting]
    assert reached + run.finished["returnedInputs"] == waiting
    if status == "completed":
        assert reached == waiting
    assert stage.send("quick").code == DONE
    assert stage.check(settled=True) == []


@pytest.mark.timeout(180)
def test_restarts_never_say_a_message_again(stage: Stage) -> None:
    """Case C14: six times the executor dies over a message, and six times the run goes on."""
    stage.config.write_text("max_attempts = 20\n" + stage.config.read_text())
    turns = [{"ifContains": "stream", "text": "one two three " * 400, "delayMs": 50}] * 20
    (stage.base / "script.json").write_text(json.dumps({"turns": turns}))
    stage.hold("stream", "model.request.started")
    words = ("steer", SESSION, "stream only new", "--key", "k1")
    first = stage.run(*words, text="stream only new").lines()
    for restart in range(6):
        stage.kill(_executor(stage, restart + 1))
        assert stage.run("recover").code == DONE
        _executor(stage, restart + 2)
        assert stage.run(*words, text="stream only new").lines() == first
        until(lambda count=restart + 2: len(_events(stage, "model.request.started")) >= count, "it asks again")
    assert stage.run("cancel", SESSION, "--wait").code == DONE
    (steer,) = [message for message in inputs_of(stage) if message["key"] == "k1"]
    (run,) = runs_of(stage.root, SESSION)
    assert run.delivered == [1, steer["seq"]]
    assert [message["seq"] for message in inputs_of(stage)] == [1, 2]
    assert stage.check(settled=True) == []


def _events(stage: Stage, kind: str) -> list[Doc]:
    (run,) = runs_of(stage.root, SESSION)
    return [event for event in run.events if event["type"] == kind]


def _executor(stage: Stage, number: int) -> int:
    """The process that began run-1 for the `number`-th time, as soon as it has."""
    begun = until(lambda: _events(stage, "run.started")[number - 1 :], f"start number {number}")
    (claim,) = [each for each in _events(stage, "run.lease_acquired") if each["generation"] == begun[0]["generation"]]
    return int(claim["payload"]["owner"]["pid"])


WHY_NOT = why_not()


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_key_makes_one_input_of_any_number_of_interrupted_tries(stage: Stage) -> None:
    assert stage.send("whole").code == 5
    words = ("steer", SESSION, "only new", "--key", "k1")
    stage.keep()
    calls = stage.calls(*words, begin=stage.put_back)
    stage.put_back()
    at = next(number for number, call in enumerate(calls) if '"only new"' in call.text.replace("\\", ""))
    # From the write on, each try dies a little later.
    for call in calls[at + 1 :]:
        stage.interrupted(call, "signal=KILL", *words, text="only new")
    tries = [stage.run(*words, text="only new") for _ in range(2)]
    assert [done.code for done in tries] == [DONE, DONE]
    assert tries[0].lines() == tries[1].lines()
    steers = [message for message in inputs_of(stage) if message["mode"] == "steer"]
    assert [message["seq"] for message in steers] == [tries[0].lines()[0]["messageSeq"]]
    assert stage.check(settled=True) == []


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_result_that_could_not_be_stored_moves_nothing_on(stage: Stage) -> None:
    """The tool wrote, its result did not get onto the disk: nobody may take the write for done, or for not done."""
    words = ("send", SESSION, "export")
    stage.keep()

    def begin() -> None:
        stage.put_back()
        stage.let_go()

    calls = stage.calls(*words, begin=begin)
    begin()
    finished = next(call for call in calls if "tool.finished" in call.text)
    done = stage.interrupted(finished, "error=ENOSPC", *words, text="export")
    assert done.code == 11, done
    assert "ENOSPC" in done.err
    (run,) = runs_of(stage.root, SESSION)
    assert [each.status for each in run.operations.values() if each.effect == "write"] in (["running"], ["unknown"])
    assert not killed(done)
    stage.run("cancel", SESSION, "--wait")
    (run,) = runs_of(stage.root, SESSION)
    assert [each.status for each in run.operations.values() if each.effect == "write"] == ["unknown"]
    assert stage.send("quick").code == DONE
    assert stage.check(settled=True) == []
