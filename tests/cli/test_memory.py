"""No command's memory grows with history: each is measured as a whole process, on a long run and on a short one.

Covers promise 16.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.records.codec import Doc
from agentrun.store.redo import recording
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept, cancel

# How many messages the user said to the runs, of two kilobytes each; half of them were taken, ten at a time.
SHORT, LONG = 20, 12_000
WORDS = "Nobody knows yet why the revenue of the evening fell. " * 37
# What an allocator makes of the same program on two days, and a few bytes for each message. Of each a program that
# keeps them holds two kilobytes, which is more than the program itself.
GENEROUS = 1.4

# The peak of a process counts from before its exec(2): so it is started by one that is smaller than any command.
LAUNCHER = """\
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Told:
    """A root with the session `told`, to whose run so many things were said, and which is under way."""

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self._session = Tree(str(root), "ann").create_session(session_id="told")
        executor = Executor(self._session, accept(self._session).run_id)
        executor.deliver()
        executor.die()
        self._lines("messages.jsonl", self._messages(count))
        self._lines("runs/run-1/operations.jsonl", self._events(count, executor.run_dir.events.last_seq()))
        with recording(self._session) as writer:
            self._session.run("run-1").rewrite_snapshot(writer)

    def _lines(self, name: str, docs: Iterator[Doc]) -> None:
        with Path(self._session.directory.at(name)).open("ab") as file:
            file.writelines(json.dumps(doc, separators=(",", ":")).encode() + b"\n" for doc in docs)

    def _messages(self, count: int) -> Iterator[Doc]:
        said = self._session.tail(1)[0].to_doc()
        del said["accept"]
        for seq in range(2, count + 2):
            yield said | {"seq": seq, "mode": "follow-up", "text": f"{seq}: {WORDS}"}

    def _events(self, count: int, last: int) -> Iterator[Doc]:
        about = {"sessionId": "told", "runId": "run-1", "generation": 1, "at": "2026-01-02T03:04:05.678Z"}
        for turn, first in enumerate(range(2, count // 2 + 2, 10), 2):
            named = {"operationId": f"op-{turn}", "attempt": 1}
            seqs = [*range(first, first + 10)]
            for kind, payload in (
                ("input.delivered", {"messageSeqs": seqs, "mode": "follow-up", "turnId": f"turn-{turn}"}),
                ("model.request.started", named | {"turnId": f"turn-{turn}", "model": "m"}),
                ("model.request.finished", named | {"status": "succeeded", "text": WORDS}),
            ):
                last += 1
                yield about | {"seq": last, "type": kind, "payload": payload}

    def peak(self, *words: str) -> int:
        """The most memory of a command, in the unit of the system."""
        argv = [sys.executable, "-m", "agentrun", "--root", str(self.root), "--account", "ann", *words]
        env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUN")}
        argv = [sys.executable, "-I", "-S", "-c", LAUNCHER, *argv]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        done = subprocess.run(argv, env=env, **silent, stderr=subprocess.PIPE, text=True, check=False)
        # 6: the executor of the run is gone.
        assert done.returncode in (0, 6), done.stderr
        return int(done.stderr.rstrip().rpartition("\n")[2])


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Told]:
    made = tmp_path_factory.mktemp("memory")
    return Told(made / "long", LONG), Told(made / "short", SHORT)


def _each(*commands: str) -> list[Any]:
    return [pytest.param(command.split(), id=command) for command in commands]


@pytest.mark.slow
@pytest.mark.parametrize("words", _each("show told --html -"))
def test_a_command_needs_no_more_memory_for_a_long_run_than_for_a_short_one(
    words: list[str], roots: tuple[Told, Told]
) -> None:
    long, short = roots
    assert long.peak(*words) < GENEROUS * short.peak(*words)


class Returned(Told):
    """A root with the session `told`, whose run was cancelled before it had taken any of what was said to it."""

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self._session = Tree(str(root), "ann").create_session(session_id="told")
        accept(self._session)
        self._lines("messages.jsonl", (each | {"text": "go on"} for each in self._messages(count)))
        cancel(self._session.another(), "run-1")


# So many that the list of their numbers is seen beside the program, as a list of Python it would be 40 bytes of each.
MANY_RETURNED = 150_000


@pytest.mark.exhaustive
def test_a_run_that_ended_without_very_many_inputs_is_looked_at_in_little_more_than_the_text_of_their_numbers(
    tmp_path: Path,
) -> None:
    long, short = Returned(tmp_path / "long", MANY_RETURNED), Returned(tmp_path / "short", SHORT)
    for words in (["ls"], ["show", "told"], ["rename", "told", "other"]):
        assert long.peak(*words) < GENEROUS * short.peak(*words), words
    # The event that names them is read as a whole.
    for words in (["check", "told"], ["show", "told/1"]):
        assert long.peak(*words) < 2 * short.peak(*words), words


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "words",
    _each(
        "ls",
        "show told",
        "show told --json",
        "show told/1",
        "show told/1 --json",
        "show told --messages",
        "show told --operations",
        "show told --timeline",
        "show told --timeline --json",
        "show told --timeline --tail 5",
        "export told --format markdown",
        "export told --format html",
        "export told --format json",
        "export told --format openai",
        "export told --format atif",
        "export told --format otlp",
        "search zebra --session told",
        "check told",
        "show told -f",
        "show told -f --json",
        "wait told",
        "recover --dry-run",
    ),
)
def test_every_command_needs_no_more_memory_for_a_long_run_than_for_a_short_one(
    words: list[str], roots: tuple[Told, Told]
) -> None:
    long, short = roots
    assert long.peak(*words) < GENEROUS * short.peak(*words)
