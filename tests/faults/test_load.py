"""Many at once: starts, writers that are killed, runs with viewers. A sample here; the whole is `make soak`.

# covers B3 B5 B10 B56 A21
# case C3
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from history import messages_of, problems, runs_of
from rig import CONFLICT, DONE, SESSION, WAITING, Done, Stage, until

STARTS = 16
WRITERS = 8
RUNS = 20
# The longest that a command of a writer lives before it is killed, in seconds: about as long as it takes.
LIFE = 0.08


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    assert stage.run("new", "--id", SESSION).code == DONE
    yield stage
    stage.end_executors()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_of_sixteen_starts_at_once_one_is_accepted(stage: Stage) -> None:
    _start_at_once(stage, rounds=2)


@pytest.mark.soak
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_of_sixteen_starts_at_once_one_is_accepted_fifty_times(stage: Stage) -> None:
    _start_at_once(stage, rounds=50)


def _start_at_once(stage: Stage, rounds: int) -> None:
    for number in range(1, rounds + 1):
        go, gate = stage.base / "go", stage.base / f"gate-{number}"
        go.unlink(missing_ok=True)
        words = ("send", SESSION, "hold", "--mode", "prompt", "--if-busy", "reject")
        starts = [stage.ready(*words, gate=gate) for _ in range(STARTS)]
        gate.touch()
        until(lambda starts=starts: sum(each.poll() is not None for each in starts) == STARTS - 1, "all but one end")
        go.touch()
        ended = [stage.end(each, "hold") for each in starts]
        accepted = [done for done in ended if done.code == DONE]
        assert len(accepted) == 1, f"round {number}: {ended}"
        assert accepted[0].lines()[0]["runId"] == f"run-{number}"
        for refused in ended:
            assert refused.code in (DONE, CONFLICT), f"round {number}: {refused}"
            assert refused.code == DONE or _error(refused)["runId"] == f"run-{number}", refused
    assert [run.status for run in runs_of(stage.root, SESSION)] == ["completed"] * rounds
    assert stage.check(settled=True) == []


def _error(done: Done) -> dict[str, str]:
    return dict(json.loads(done.err.splitlines()[-1])["error"])


@pytest.mark.sampled
@pytest.mark.slow
def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(stage: Stage) -> None:
    _write_and_kill(stage, seconds=2)


@pytest.mark.soak
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_writers_that_are_killed_for_a_minute_lose_nothing_that_was_acknowledged(stage: Stage) -> None:
    _write_and_kill(stage, seconds=60)


def _write_and_kill(stage: Stage, seconds: float) -> None:
    assert stage.send("whole").code == WAITING
    end = time.monotonic() + seconds
    done: list[int] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        count = 0
        # Each has one that is killed and one that lives, however slow the machine.
        while time.monotonic() < end or count < 2:
            count += 1
            text = f"steer {number}.{count}"
            process = stage.ready("steer", SESSION, text)
            # Every other command may live.
            if count % 2:
                time.sleep(chance.uniform(0, LIFE))
                process.kill()
            done.append(stage.end(process, text).code)

    stage_writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for writer in stage_writers:
        writer.start()
    for writer in stage_writers:
        writer.join()
    assert set(done) == {DONE, -signal.SIGKILL}, "nobody was killed, or nobody got through, or somebody was refused"
    assert stage.send("week 12").code == DONE
    assert stage.check(settled=True) == []
    texts = [message["text"] for message in messages_of(stage.root, SESSION) if message["mode"] == "steer"]
    assert len(texts) == len(set(texts)), "a message was stored twice"


@pytest.mark.sampled
@pytest.mark.slow
def test_runs_at_once_and_their_viewers_do_not_meet(stage: Stage) -> None:
    _run_beside_each_other(stage, count=4)


@pytest.mark.soak
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_twenty_runs_at_once_and_their_viewers_do_not_meet(stage: Stage) -> None:
    _run_beside_each_other(stage, count=RUNS)


def _run_beside_each_other(stage: Stage, count: int) -> None:
    names = [f"beside-{number}" for number in range(count)]
    for name in names:
        assert stage.run("new", "--id", name).code == DONE
        assert stage.run("send", name, f"hold {name}", "--detach", text=f"hold {name}").code == DONE
    # Two viewers of each run, and some that leave before the end.
    viewers = {name: [stage.ready("show", "-f", f"{name}/run-1") for _ in range(2)] for name in names}
    leaving = [stage.ready("show", "-f", f"{name}/run-1") for name in names[::2]]
    # All at once: none of them ends before it is let go.
    assert len(stage.detached()) == count
    for viewer in leaving:
        viewer.send_signal(signal.SIGINT)
    stage.let_go()
    for name in names:
        stored = stage.run("show", f"{name}/run-1", "--operations", "--since", "0").lines()
        for viewer in viewers[name]:
            seen = stage.end(viewer)
            assert seen.code == DONE, seen
            events = [line for line in seen.lines() if "payload" in line]
            assert {event["sessionId"] for event in events} == {name}
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert events[-1]["type"] == "run.lease_released" or "run.finished" in {each["type"] for each in events}
            assert [each for each in stored if each["seq"] <= len(events)] == events[: len(stored)]
    for viewer in leaving:
        stage.end(viewer)
    until(lambda: not stage.detached(), "the executors have ended")
    assert problems(stage.root, stage.ledger, settled=True) == []
    assert stage.run("check").code == DONE
