"""A long time of everything at once: runs in many sessions, said to, stopped, killed and taken up again, by chance.

At the end `check` is clean, no process is left, the patrol that was there all the time holds but a few files open,
and each input was delivered once or returned.

# covers A47 A58 A60 A64 B25 B57 B61
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from history import messages_of, problems, runs_of
from rig import CANCELLED, CONFLICT, DONE, NOT_OVER, WAITING, Stage, Started, until

Doc = dict[str, Any]

SCRIPT: Doc = {
    "turns": [
        {"ifContains": "tools", "text": "I look.", "calls": [{"name": "look"}, {"name": "count"}]},
        {"ifContains": "ask", "ask": "Which week?"},
        {"ifContains": "long", "text": "one two three four five six seven eight nine ten " * 2, "delayMs": 30},
        *({"text": f"The report, take {number}.", "delayMs": 5} for number in range(40)),
    ]
}
TEXTS = ("quick", "quick", "tools", "tools", "ask", "long")
# What a command may end with: a failed run and one that nobody recovered yet, too, but no bug and no damage.
NOT_FOUND, FAILED = 8, 1
FINE = {DONE, FAILED, CANCELLED, WAITING, NOT_OVER, CONFLICT, NOT_FOUND, -signal.SIGKILL, -signal.SIGTERM, 143, 130}
ATTEMPTS = 20
# What a patrol has open for itself, with some to spare; how many runs it has seen must make no difference.
FILES_OF_PATROL = 12


class Soak:
    """Users who act by chance in several sessions until so many runs were accepted."""

    def __init__(self, stage: Stage, sessions: int, runs: int, seed: int) -> None:
        self.stage = stage
        self.sessions = [f"soak-{number}" for number in range(sessions)]
        self.runs = runs
        self.seed = seed
        self.wrong: list[str] = []
        self.happened: Counter[str] = Counter()
        # Session and number of what was accepted as a prompt: one that is said again under its key is the same one.
        self.prompts: set[tuple[str, int]] = set()
        (stage.base / "script.json").write_text(json.dumps(SCRIPT))
        config = stage.config.read_text().replace("echo $AGENTRUN_RUN", "echo $AGENTRUN_SESSION/$AGENTRUN_RUN")
        stage.config.write_text(f"max_attempts = {ATTEMPTS}\n{config}")
        for name in self.sessions:
            assert stage.run("new", "--id", name).code == DONE
        self.patrol = stage.start("recover", "--watch")

    def go(self, users: int, seconds: float) -> None:
        """Lets the users act; `seconds` bounds it on a machine that is too slow."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._user, args=(number, end)) for number in range(users)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._come_to_rest()
        until(lambda: len(self._files_of_patrol()) <= FILES_OF_PATROL, "the patrol has closed what it opened")
        print(f"open in the patrol: {self._files_of_patrol()}")
        self.patrol.send_signal(signal.SIGTERM)
        self.patrol.wait(30)

    def _user(self, number: int, end: float) -> None:
        chance = random.Random(f"{self.seed} {number}")
        step = 0
        while self._accepted() < self.runs and time.monotonic() < end:
            step += 1
            deed = chance.choices(list(DEEDS), weights=list(DEEDS.values()))[0]
            try:
                deed(self, chance, chance.choice(self.sessions), f"{number}.{step}")
            except Exception as error:  # noqa: BLE001 - it would die with its thread, and nobody would know
                self.wrong.append(f"{deed.__name__}: {error!r}")

    def _accepted(self) -> int:
        return len(self.prompts)

    def command(self, *words: str, text: str | None = None, life: float | None = None) -> None:
        """Runs a command; `life` is how many seconds it has until it is killed."""
        process = self.stage.ready(*words)
        if life is not None:
            with suppress(Exception):
                process.wait(life)
            process.kill()
        done = self.stage.end(process, text)
        self.happened[words[0]] += 1
        self.happened["killed"] += done.code == -signal.SIGKILL
        told = [line for line in done.out.splitlines(keepends=True) if line.endswith("\n") and "accepted" in line]
        accepted = [doc for doc in map(json.loads, told) if doc.get("type") == "accepted" and doc["mode"] == "prompt"]
        self.prompts |= {(doc["sessionId"], doc["messageSeq"]) for doc in accepted}
        if done.code not in FINE or "Traceback" in done.err:
            self.wrong.append(f"{words}: {done}")

    def say(self, chance: random.Random, session: str, name: str) -> None:
        text = f"{chance.choice(TEXTS)} {name}"
        policy = chance.choice(["queue", "queue", "interrupt", "reject"])
        # Behind a run that waits for its user it would stay as long as that does.
        self.command("send", session, text, "--if-busy", policy, text=text, life=4.0)

    def say_and_die(self, chance: random.Random, session: str, name: str) -> None:
        text = f"{chance.choice(TEXTS)} {name}"
        self.command("send", session, text, "--if-busy", "queue", text=text, life=chance.uniform(0, 0.3))

    def say_detached(self, chance: random.Random, session: str, name: str) -> None:
        text = f"{chance.choice(TEXTS)} {name}"
        self.command("send", session, text, "--detach", "--if-busy", "queue", text=text)

    def say_twice(self, chance: random.Random, session: str, name: str) -> None:
        text = f"quick {name}"
        for life in (chance.uniform(0, 0.2), None):
            words = ("send", session, text, "--if-busy", "queue", "--key", f"k{name}")
            self.command(*words, text=text, life=life or 4.0)

    def answer(self, chance: random.Random, session: str, name: str) -> None:
        text = f"week {name}"
        self.command("send", session, text, "--mode", "answer", "--detach", text=text)

    def steer(self, chance: random.Random, session: str, name: str) -> None:
        text = f"steer {name}"
        self.command("steer", session, text, text=text, life=chance.choice([None, chance.uniform(0, 0.1)]))

    def cancel(self, chance: random.Random, session: str, name: str) -> None:
        self.command("cancel", session, *chance.choice([[], ["--wait"], ["--force"]]))

    def recover(self, chance: random.Random, session: str, name: str) -> None:
        self.command("recover", life=chance.choice([None, chance.uniform(0, 0.2)]))

    def look(self, chance: random.Random, session: str, name: str) -> None:
        self.command("show", session)

    def kill(self, chance: random.Random, session: str, name: str) -> None:
        """kill -9 of whatever executes a run without a terminal now."""
        executors = sorted(self.stage.detached())
        if executors:
            self.happened["executor killed"] += 1
            with suppress(ProcessLookupError):
                os.kill(chance.choice(executors), signal.SIGKILL)

    def _come_to_rest(self) -> None:
        for session in self.sessions:
            for run in runs_of(self.stage.root, session):
                if not run.is_over:
                    words = ("cancel", f"{session}/{run.run_id}", "--wait", "--timeout", "60s")
                    self.command(*words)
        until(lambda: not self.stage.detached(), "the executors have ended")
        for session in self.sessions:
            self.command("send", session, "quick, the last one", text="quick, the last one")

    def _files_of_patrol(self) -> list[str]:
        files = []
        for each in Path(f"/proc/{self.patrol.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                files.append(os.readlink(each))
        return files

    def end(self) -> None:
        for pid in (*self.stage.detached(), *_of_the_root(self.stage.root)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _kill(self.patrol)


# What a user does, and how often.
DEEDS = {
    Soak.say: 8,
    Soak.say_and_die: 3,
    Soak.say_detached: 2,
    Soak.say_twice: 1,
    Soak.answer: 1,
    Soak.steer: 2,
    Soak.cancel: 2,
    Soak.recover: 1,
    Soak.look: 1,
    Soak.kill: 1,
}


def _kill(process: Started) -> None:
    process.kill()
    process.wait()


def _of_the_root(root: Path) -> list[int]:
    """The processes that runs of this tree started and that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (path / "environ").read_bytes().split(b"\0")
            if f"AGENTRUN_ROOT={root}".encode() in environment and any(
                each.startswith(b"AGENTRUN_SESSION=") for each in environment
            ):
                found.append(int(path.name))
    return found


def _effects_problems(stage: Stage, sessions: list[str]) -> Iterator[str]:
    """Each write happened at most once for each time that it was dispatched, and never without its record."""
    happened = Counter(stage.effects())
    for session in sessions:
        for run in runs_of(stage.root, session):
            for name, operation in run.operations.items():
                times = happened.pop(f"{session}/{run.run_id} {name}", 0)
                if times > min(1, operation.dispatched):
                    yield f"{session}/{run.run_id} {name} happened {times} times"
                if operation.effect == "write" and operation.status == "succeeded" and times != 1:
                    yield f"{session}/{run.run_id} {name} is told as succeeded and happened {times} times"
    yield from (f"{name} happened and nothing registered it" for name in happened)


def _soak(base: Path, *, sessions: int, runs: int, users: int, seed: int, seconds: float) -> None:
    stage = Stage(base, lease="3s")
    soak = Soak(stage, sessions, runs, seed)
    try:
        soak.go(users, seconds)
        assert not soak.wrong, f"seed {seed}:\n" + "\n".join(soak.wrong)
        assert problems(stage.root, stage.ledger, settled=True) == []
        assert list(_effects_problems(stage, soak.sessions)) == []
        checked = stage.run("check")
        assert (checked.code, [line for line in checked.lines() if line["finding"]["wrong"]]) == (DONE, [])
        until(lambda: not _of_the_root(stage.root), "the tools have ended")
        stored = sum(m["mode"] == "prompt" for each in soak.sessions for m in messages_of(stage.root, each))
        assert stored >= len(soak.prompts) >= runs, f"in {seconds} s: {soak.happened}"
        print(f"{stored} runs: {dict(soak.happened)}")
    finally:
        soak.end()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_while_of_everything_at_once_leaves_nothing_behind(tmp_path: Path) -> None:
    _soak(tmp_path, sessions=3, runs=12, users=3, seed=1, seconds=120)


@pytest.mark.soak
@pytest.mark.exhaustive
@pytest.mark.timeout(2700)
def test_a_thousand_runs_with_everything_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    _soak(tmp_path, sessions=24, runs=1000, users=6, seed=2, seconds=2400)
