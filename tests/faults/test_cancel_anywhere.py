"""A cancel at any system call of a run that touches the tree: it ends the run, or comes too late and says so.

The run asks its model, makes a call that looks and one that writes, and asks again. Its executor is stopped behind one
system call after the other; then somebody cancels it, by the command or by `touch`, and it goes on.

# covers A43 A48 A49 A51 A53 A73 B26 B29 B31
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from history import Run, messages_of, runs_of
from rig import CANCELLED, CONFLICT, DONE, NOT_OVER, SESSION, Call, Done, Held, Stage, Started, is_locked, until
from situations import a_session
from system_calls import why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

TEXT = "both"
SEND = ("send", SESSION, TEXT)
NOT_FOUND = 8
# What begins something; nothing of this may stand behind a stored intent.
BEGINNINGS = {
    "run.started", "input.delivered", "model.request.started", "tool.registered", "tool.started",
    "run.child_announced", "run.waiting_input", "run.compacting",
}  # fmt: skip
ENDINGS = {"tool.finished", "model.request.finished", "operation.reconciled"}
# The quick test takes so many calls; the exhaustive one all of them.
SAMPLE = 3
TRIES = 3


class Cancelled(NamedTuple):
    """What a cancel at one call came to. `code` is what `cancel` said; None where it was a touched file."""

    code: int | None
    sent: Done


@pytest.mark.slow
def test_a_cancel_now_and_then_ends_the_run_or_says_that_it_is_over(tmp_path: Path) -> None:
    stage, calls = _prepared(tmp_path)
    _judge_each(stage, calls[len(calls) // (2 * SAMPLE) :: len(calls) // SAMPLE], _by_command)


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", ["command", "touch"])
def test_a_cancel_at_each_call_ends_the_run_or_says_that_it_is_over(way: str, tmp_path: Path) -> None:
    stage, calls = _prepared(tmp_path)
    ends = _judge_each(stage, calls, _by_command if way == "command" else _by_touch)
    assert {"cancelled", "completed"} == set(ends), ends


def _prepared(base: Path) -> tuple[Stage, list[Call]]:
    stage = Stage(base)
    a_session(stage)
    stage.keep()
    return stage, stage.calls(*SEND, begin=stage.put_back)


def _judge_each(stage: Stage, calls: list[Call], cancel: Callable[[Stage, Held], int | None]) -> list[str]:
    wrong, ends = [], []
    for call in calls:
        for _ in range(TRIES):
            stage.put_back()
            held = stage.held_at(call, *SEND, text=TEXT)
            if held is not None:
                outcome = Cancelled(cancel(stage, held), held.end())
                wrong += [f"cancelled behind {call} ({call.text[:150]}): {each}" for each in _judged(stage, outcome)]
                ends += [run.status for run in runs_of(stage.root, SESSION)]
                break
    stage.end_executors()
    assert not wrong, "\n".join(wrong)
    # The order of what runs at the same time varies, and the last call of a kind may not come.
    assert len(ends) >= len(calls) * 0.8, f"{len(ends)} of {len(calls)} calls were reached"
    return ends


def _by_command(stage: Stage, held: Held) -> int:
    """Cancels while the executor stands still; one that stands still with the session's lock goes on before that."""
    canceller = stage.ready("cancel", f"{SESSION}/run-1")
    if _is_locked(stage):
        until(lambda: _waits_for_the_session(stage, canceller), "the canceller waiting for the lock")
    else:
        until(lambda: canceller.poll() is not None, "the cancel being stored")
    held.go_on()
    return stage.end(canceller).code


def _by_touch(stage: Stage, held: Held) -> None:
    """Makes the file; a run that has no directory yet cannot be told so."""
    for path in stage.root.glob(f"accounts/*/sessions/{SESSION}/runs/run-1"):
        (path / "cancel").touch(0o600)
    held.go_on()


def _is_locked(stage: Stage) -> bool:
    (path,) = stage.root.glob(f"accounts/*/sessions/{SESSION}")
    return is_locked(path)


def _waits_for_the_session(stage: Stage, canceller: Started) -> bool:
    """Whether it has the session's directory open twice, which it does to lock it; or has ended for another reason."""
    if canceller.poll() is not None:
        return True
    opened = []
    for name in os.listdir(f"/proc/{canceller.pid}/fd"):
        with suppress(OSError):  # closed in the meantime
            opened.append(os.readlink(f"/proc/{canceller.pid}/fd/{name}"))
    return sum(path.endswith(f"/sessions/{SESSION}") for path in opened) > 1


def _judged(stage: Stage, outcome: Cancelled) -> list[str]:
    """What is wrong with how the run, the canceller and the sender ended."""
    (run,) = runs_of(stage.root, SESSION)
    wrong = stage.check(settled=True) + _after_the_intent(run) + _told(stage, run)
    expected = {DONE: "cancelled", NOT_OVER: "cancelled", CONFLICT: "completed", NOT_FOUND: "completed"}
    if outcome.code is not None and expected.get(outcome.code) != run.status:
        wrong.append(f"cancel gave {outcome.code}, and the run is {run.status}")
    if outcome.sent.code != {"cancelled": CANCELLED, "completed": DONE}.get(run.status):
        wrong.append(f"the run is {run.status}, and send gave {outcome.sent}")
    left = stage.processes()
    return wrong + ([f"these processes are left: {left}"] if left else [])


def _after_the_intent(run: Run) -> list[str]:
    """Nothing begins behind a stored intent, and a run without one is not cancelled."""
    types = [event["type"] for event in run.events]
    intents = types.count("run.cancel_requested")
    if run.status != "cancelled":
        return [f"the run is {run.status}, and a cancel is recorded"] if intents else []
    if intents != 1:
        return [f"the run is cancelled, with {intents} intents"]
    behind = types[types.index("run.cancel_requested") + 1 :]
    began = [each for each in behind if each in BEGINNINGS]
    lost = [] if behind[-1:] == ["run.finished"] else [f"the last event is {types[-1]}"]
    return lost + [f"{each} stands behind the intent" for each in began]


def _told(stage: Stage, run: Run) -> list[str]:
    """Each operation has one outcome, and what is said of a write that was stopped is what it did."""
    wrong = [f"{name} is {each.status}" for name, each in run.operations.items() if each.is_open]
    happened = stage.effects()
    for name, each in run.operations.items():
        ended = [event for event in run.events if event["payload"].get("operationId") == name]
        if sum(event["type"] in ENDINGS for event in ended) != 1:
            wrong.append(f"{name} has not one outcome: {[event['type'] for event in ended]}")
        is_denied = each.status == "skipped" or (each.status == "cancelled" and not each.may_have_effects)
        if is_denied and f"run-1 {name}" in happened:
            wrong.append(f"{name} happened, and is told as {each.status} without effects")
    closing = [message["mode"] for message in messages_of(stage.root, SESSION) if message["role"] != "user"]
    if closing != [{"cancelled": "ended", "completed": "report"}.get(run.status)]:
        wrong.append(f"the run is {run.status}, and the conversation has {closing}")
    return wrong
