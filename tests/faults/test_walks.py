"""Several users at once, who say, stop and kill at random: whatever they do, the tree keeps what was promised.

A walk is a seed: each user draws commands from it and runs them as processes, beside the others, while executors are
killed. Time and again, and at the end, the tree is read by `history` and held against the model below: the queue, as
the conversation alone tells it.

# covers B2 B3 B5 B7 B10 B21 B25 B56 A47 A53 A68 A75; case C3 C13
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from history import messages_of, problems, runs_of
from rig import CONFLICT, DONE, NOT_OVER, SESSION, WAITING, Stage, until

Doc = dict[str, Any]

SCRIPT: Doc = {
    "turns": [
        {"ifContains": "Summarise the conversation", "text": "They have talked about it."},
        {"ifContains": "tools", "text": "I look.", "calls": [{"name": "look"}, {"name": "count"}]},
        {"ifContains": "risky", "text": "I count.", "calls": [{"name": "asked_count"}, {"name": "look"}]},
        {"ifContains": "ask", "ask": "Which week?"},
        {"ifContains": "long", "text": "one two three four five six seven eight nine ten " * 2, "delayMs": 60},
        *({"text": f"The report, take {number}.", "delayMs": 10} for number in range(40)),
    ]
}
POLICIES = ("queue", "queue", "interrupt", "reject", "steer")
TEXTS = ("quick", "tools", "risky", "risky", "ask", "long")
USERS = 3
# What a command may say: it is done, it waits, it is not over, it is refused, or there is nothing yet.
FINE = {DONE, WAITING, NOT_OVER, CONFLICT, 8}


class Walk:
    """A walk of several users over one session."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.seed = seed
        self.wrong: list[str] = []
        self.staying: list[subprocess.Popen[bytes]] = []
        (stage.base / "script.json").write_text(json.dumps(SCRIPT))
        assert stage.run("new", "--id", SESSION).code == DONE

    def go(self, steps: int) -> None:
        """Lets the users take their steps, then lets everything come to rest."""
        users = [threading.Thread(target=self._user, args=(number, steps)) for number in range(USERS)]
        for user in users:
            user.start()
        while any(user.is_alive() for user in users):
            self._look()
        for user in users:
            user.join()
        self._come_to_rest()
        self.wrong += self.stage.check(settled=True) + queue_problems(self.stage)

    def _user(self, number: int, steps: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        for step in range(steps):
            draw = chance.choices(list(DEEDS), weights=list(DEEDS.values()))[0]
            try:
                draw(self, chance, f"{number}.{step}")
            except Exception as error:  # noqa: BLE001 - it would die with its thread, and nobody would know
                self.wrong.append(f"{draw.__name__}: {error!r}")

    def command(self, *words: str, text: str | None = None) -> None:
        done = self.stage.run(*words, text=text)
        if done.code not in FINE or "Traceback" in done.err:
            self.wrong.append(f"{words}: {done}")

    def say(self, chance: random.Random, name: str) -> None:
        """A prompt, or whatever else it becomes."""
        text = f"{chance.choice(TEXTS)} {name}"
        self.command("send", SESSION, text, "--detach", "--if-busy", chance.choice(POLICIES), text=text)

    def say_with_a_key(self, chance: random.Random, name: str) -> None:
        """Users share a few keys, so that some say the same at the same time."""
        key = f"k{chance.randrange(3)}"
        text = f"quick {key}"
        self.command("send", SESSION, text, "--detach", "--if-busy", "queue", "--key", key, text=text)

    def say_plainly(self, chance: random.Random, name: str) -> None:
        text = f"quick {name}"
        self.command("send", self._somewhere(chance), text, "--detach", text=text)

    def steer(self, chance: random.Random, name: str) -> None:
        text = f"steer {name}"
        self.command("steer", self._somewhere(chance), text, text=text)

    def cancel(self, chance: random.Random, name: str) -> None:
        self.command("cancel", self._somewhere(chance), "--reason", name)

    def decide(self, chance: random.Random, name: str) -> None:
        """A word on a call that waits for it; most times there is none."""
        self.command(chance.choice(["approve", "approve", "deny"]), SESSION, "--note", name)

    def resume(self, chance: random.Random, name: str) -> None:
        self.command("resume", SESSION, "--detach")

    def compact(self, chance: random.Random, name: str) -> None:
        self.command("compact", SESSION, "--detach")

    def keep_house(self, chance: random.Random, name: str) -> None:
        """What concerns the session alone, and no run of it."""
        words = chance.choice(
            [["rename", SESSION, name], ["archive", SESSION], ["unarchive", SESSION], ["fork", SESSION]]
        )
        self.command(*words)

    def recover(self, chance: random.Random, name: str) -> None:
        self.command("recover")

    def look(self, chance: random.Random, name: str) -> None:
        self.command("show", self._somewhere(chance))

    def stay(self, chance: random.Random, name: str) -> None:
        """A prompt whose process waits for its turn, and executes it."""
        self.staying.append(self.stage.start("send", SESSION, f"tools {name}", "--if-busy", "queue"))

    def end_one_that_stays(self, chance: random.Random, name: str) -> None:
        if self.staying:
            chance.choice(self.staying).send_signal(chance.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))

    def kill(self, chance: random.Random, name: str) -> None:
        """kill -9 of whatever executes a run now."""
        executors = sorted(self.stage.detached())
        if executors:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(executors), signal.SIGKILL)

    def _somewhere(self, chance: random.Random) -> str:
        runs = len([m for m in messages_of(self.stage.root, SESSION) if m["mode"] == "prompt"])
        return chance.choice([SESSION, f"{SESSION}/run-{chance.randint(1, runs)}" if runs else SESSION])

    def _look(self) -> None:
        with self.stage.locked():
            self.wrong += problems(self.stage.root, self.stage.ledger.copy(), settled=False)
            begun = [run.run_id for run in runs_of(self.stage.root, SESSION) if run.started and not run.is_over]
        if len(begun) > 1:
            self.wrong.append(f"active at once: {begun}")

    def _come_to_rest(self) -> None:
        for process in self.staying:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        for run_id in [run.run_id for run in runs_of(self.stage.root, SESSION) if not run.is_over]:
            # It may be under way: then it ends by itself, or it is seen to be lost.
            self.stage.run("wait", f"{SESSION}/{run_id}", "--timeout", "500ms")
            self.stage.run("cancel", f"{SESSION}/{run_id}", "--wait", "--timeout", "30s")
        until(lambda: not self.stage.detached(), "the executors have ended")
        self.command("show", SESSION)

    def end(self) -> None:
        for process in self.staying:
            process.kill()
            process.wait()
        for pid in self.stage.detached():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# What a user does, and how often.
DEEDS = {
    Walk.say: 6,
    Walk.say_with_a_key: 1,
    Walk.say_plainly: 2,
    Walk.steer: 2,
    Walk.cancel: 2,
    Walk.decide: 2,
    Walk.resume: 1,
    Walk.compact: 1,
    Walk.keep_house: 1,
    Walk.recover: 1,
    Walk.look: 1,
    Walk.stay: 1,
    Walk.end_one_that_stays: 1,
    Walk.kill: 2,
}


def queue_problems(stage: Stage) -> list[str]:
    """Holds the session against the queue that its conversation tells: acceptances and ends, by the order of lines.

    First come first served, but for those that interrupt; only the head is ever begun; what was interrupted does not
    complete.
    """
    found: list[str] = []
    runs = {run.run_id: run for run in runs_of(stage.root, SESSION)}
    queue: list[str] = []
    was_head: set[str] = set()
    for message in messages_of(stage.root, SESSION):
        run_id = message["runId"]
        if message["mode"] in ("prompt", "compact"):
            accept = message["accept"]
            if accept["behind"] != queue:
                found.append(f"{run_id} was accepted behind {accept['behind']}, there were {queue}")
            if accept["atHead"]:
                if runs[queue[0]].status == "completed":
                    found.append(f"{queue[0]} completed, though {run_id} had interrupted it")
                queue.insert(1, run_id)
            else:
                queue.append(run_id)
        elif message["mode"] in ("report", "ended"):
            if run_id not in queue:
                found.append(f"{run_id} ended, and was not open")
                continue
            queue.remove(run_id)
        was_head |= set(queue[:1])
    begun = [run.run_id for run in runs.values() if run.started]
    found += [f"{run_id} was begun out of its turn" for run_id in begun if run_id not in was_head]
    return found + ([f"{queue} never ended"] if queue else [])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def _walk(stage: Stage, seed: int, steps: int) -> None:
    walk = Walk(stage, seed)
    try:
        walk.go(steps)
    finally:
        walk.end()
    prompts = [message for message in messages_of(stage.root, SESSION) if message["mode"] == "prompt"]
    assert prompts, f"seed {seed}: nothing happened"
    assert not walk.wrong, f"seed {seed}:\n" + "\n".join(dict.fromkeys(walk.wrong))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1])
def test_a_short_walk_keeps_the_promises(stage: Stage, seed: int) -> None:
    _walk(stage, seed, 3)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10, 22))
def test_a_long_walk_keeps_the_promises(stage: Stage, seed: int) -> None:
    _walk(stage, seed, 30)
