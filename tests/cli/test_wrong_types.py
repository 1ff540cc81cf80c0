"""Whatever type a stored field has, no command takes it for what it should be and falls over: it is damage, and told.

Every field of every stored document, one after the other, is replaced by each value that it must not have. The commands
are called in this process: thousands of them are.

# covers promise 2, A58 A68. case C1.
"""

from __future__ import annotations

import copy
import functools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentrun.cli import chosen
from agentrun.cli.chosen import command_for
from agentrun.cli.command_line import run
from agentrun.states import EventType as E
from agentrun.store import inbox
from agentrun.store.attachments import keep_attachment
from agentrun.store.inbox import Order
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

BUG = 70
MISSING = object()
WRONG: tuple[Any, ...] = (MISSING, None, True, 10**400, "\0\ud800", [[]], {"a": 1})
CONFIG = """\
[agents.analyst]
model = "scripted:script.json"
"""
# Sessions none of whose runs goes on.
OVER = ("over", "fork")
# What tells where something stands is not what it says: a line that names another run is another test's.
PLACE = {"sessionId", "runId", "seq", "type"}


class Case(NamedTuple):
    """The field at `path` in line `line` of the file `name` (None: it is one document), replaced by `value`."""

    name: str
    line: int | None
    path: tuple[str | int, ...]
    value: Any

    @property
    def session(self) -> str:
        return self.name.partition("/")[0]

    def __str__(self) -> str:
        value = "nothing" if self.value is MISSING else repr(self.value)[:30]
        return f"{self.name}:{self.line} {'.'.join(map(str, self.path))} = {value}"


def paths_in(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every field in `value`; of a list, its first element stands for all."""
    items: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:1]))
    for key, each in items:
        yield (*above, key)
        yield from paths_in(each, (*above, key))


def replaced(doc: Any, path: tuple[str | int, ...], value: Any) -> bytes:
    doc = copy.deepcopy(doc)
    at = doc
    for key in path[:-1]:
        at = at[key]
    if value is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(doc, separators=(",", ":")).encode()


class Sample:
    """A tree in which every field that there is stands somewhere."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.tree = Tree(str(self.root))
        (base / "agentrun.toml").write_text(CONFIG)
        self.config = str(base / "agentrun.toml")
        trees.whole_life(self.tree.create_session(title="t", session_id="over"))
        self._parent(self.tree.create_session(title="t", session_id="lost"))
        self._child(self.tree.create_session(title="t", session_id="waits", agent="analyst"))
        self._ending(self.tree.create_session(title="t", session_id="ends"))
        self.tree.fork_session(self.tree.session("over"), 2)
        self.sessions = Path(self.tree.path_of("over")).parent
        (fork,) = (each for each in self.tree.session_ids() if each.startswith("session-"))
        (self.sessions / fork).rename(self.sessions / "fork")
        for path in (self.sessions / "fork").glob("*.json*"):
            path.write_text(path.read_text().replace(fork, "fork"))
        self.kept = base / "kept"
        shutil.copytree(self.sessions, self.kept)

    def _parent(self, session: SessionDir) -> None:
        """A lost run, which began another one, with all that an executor writes."""
        order = Order(agent="gone", references=("run-1",), timeout=60, config={"path": "/x", "sha256": "0" * 64})
        executor = Executor(session, trees.accept(session, "go", key="k1", order=order).run_id)
        executor.deliver()
        usage = {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 1, "cacheWriteTokens": 1, "costUsd": 0.5}
        executor.append(E.MODEL_REQUEST_STARTED, operationId="op-1", turnId="turn-1", model="m", attempt=1)
        retry = {"status": "failed", "error": "e", "willRetry": True, "pauseMs": 5, "attempt": 1}
        executor.append(E.MODEL_REQUEST_FINISHED, operationId="op-1", **retry)
        executor.append(E.MODEL_REQUEST_STARTED, operationId="op-1", turnId="turn-1", model="m", attempt=2)
        call = {"id": "call-op-2", "name": "export", "arguments": {"week": 12}}
        executor.append(
            E.MODEL_REQUEST_FINISHED, operationId="op-1", status="succeeded", stopReason="end_turn", text="ok",
            toolCalls=[call], usage=usage, attempt=2, question="which?", extra={"scriptTurn": 1},
        )  # fmt: skip
        executor.start_tool("op-2")
        executor.append(E.TOOL_PROGRESS, operationId="op-2", text="half")
        executor.append(E.TOOL_REMOTE_ID, operationId="op-2", remoteId="r-1")
        kept = executor.keep(b"x" * 100)
        executor.append(
            E.TOOL_FINISHED, operationId="op-2", status="unknown", mayHaveEffects=True, attempt=1, result="x",
            blob=kept, error="e", note="n",
        )  # fmt: skip
        names = {"operationId": "op-3", "toolCallId": None, "toolName": "true"}
        check = {"command": "true", "sha256": "0" * 64}
        executor.append(
            E.TOOL_REGISTERED, turnId="turn-1", arguments={}, effect="read", idempotencyKey="k", resource="r",
            check=check, **names,
        )  # fmt: skip
        executor.append(E.TOOL_STARTED, attempt=1, **names)
        actor = trees.ACTOR | {"run": None}
        about = {"operationId": "op-2", "actor": actor}
        executor.append(E.RUN_CHILD_ANNOUNCED, sessionId="waits", afterSeq=0, **about)
        executor.append(E.OPERATION_CANCEL_REQUESTED, reason="r", via="command", force=True, **about)
        executor.append(E.RUN_COMPACTING, covers={"messageSeq": 1, "runId": None, "eventSeq": None})
        executor.append(E.RUN_COMPACTED, operationId="op-1", covers=None, error="e")
        executor.append(E.RUN_RECONCILING, reason="r", operationIds=["op-2"], executingMs=5)
        found = {"status": "unknown", "evidence": "e", "mayHaveEffects": True, "error": "e", "result": "x", "note": "n"}
        executor.append(E.OPERATION_RECONCILED, **found, **about)
        with recording(session) as writer:
            executor.run_dir.write_snapshot(writer)
        executor.die()

    def _child(self, session: SessionDir) -> None:
        """A run that waits for an approval, behind it one in the queue, with a file; its first one answered."""
        parent = {"sessionId": "lost", "runId": "run-1", "operationId": "op-2"}
        with writing(session) as writer:
            file = keep_attachment(writer, "a.txt", "file", b"a file")
            order = Order(agent="gone", attachments=(file,), parent_run=parent)
            run_id = inbox.accept_prompt(writer, trees.said("go"), order)[1].run_id
        executor = Executor(session, run_id)
        executor.deliver()
        executor.ask()
        trees.answer(session, run_id, "week 12")
        executor.start_tool()
        executor.append(
            E.RUN_WAITING_INPUT, questionId="question-2", kind="approval", text="may it?", operationId="op-2",
            deadline="2126-01-02T03:04:05.678Z", executingMs=1,
        )  # fmt: skip
        with recording(session) as writer:
            executor.run_dir.write_snapshot(writer)
        executor.die()
        trees.accept(session, "next", order=Order(agent="gone", references=("run-1",)))

    def _ending(self, session: SessionDir) -> None:
        """A run that was told to end, and of which something is still alive."""
        executor = Executor(session, trees.accept(session).run_id)
        trees.cancel(session, executor.run_dir.run_id)
        executor.append(E.RUN_SURVIVORS_FOUND, survivors=["sh (1)"])
        with recording(session) as writer:
            executor.run_dir.write_snapshot(writer)
        executor.die()

    def docs(self, name: str) -> list[tuple[int | None, Any]]:
        data = (self.kept / name).read_bytes()
        if not name.endswith(".jsonl"):
            return [(None, json.loads(data))]
        return [(number, json.loads(line)) for number, line in enumerate(data.split(b"\n")[:-1])]

    def cases(self) -> Iterator[Case]:
        """Of lines, and of documents that say the same kind of thing, each field once."""
        seen = set()
        # Those that `recover` takes its time for come last.
        paths = [
            path for session in (*OVER, "waits", "lost", "ends") for path in sorted((self.kept / session).rglob("*"))
        ]
        for path in paths:
            name = str(path.relative_to(self.kept))
            if not (path.suffix in (".json", ".jsonl") or path.parent.name == "keys") or path.is_dir():
                continue
            for line, doc in self.docs(name):
                # What becomes of a snapshot depends on how the run stands.
                about = doc.get("status", "") if line is None else doc.get("type") or (doc.get("role"), doc.get("mode"))
                for field in paths_in(doc):
                    kind = "key" if path.parent.name == "keys" else path.name, about, field
                    if kind not in seen and not (line is not None and field[0] in PLACE and len(field) == 1):
                        seen.add(kind)
                        yield from (Case(name, line, field, value) for value in WRONG)

    def break_it(self, case: Case) -> None:
        """Puts the tree as it was, but for the one field; of the other sessions, those with runs that are over."""
        # An executor that a command of the last case began may still write there: what it has is taken from its sight.
        gone = tempfile.mkdtemp(dir=self.root.parent)
        self.sessions.rename(Path(gone, "sessions"))
        shutil.rmtree(gone, ignore_errors=True)
        self.sessions.mkdir(0o700)
        for session in {*OVER, case.session}:
            shutil.copytree(self.kept / session, self.sessions / session)
        path = self.sessions / case.name
        docs = self.docs(case.name)
        if case.line is None:
            path.write_bytes(replaced(docs[0][1], case.path, case.value))
            return
        lines = path.read_bytes().split(b"\n")
        lines[case.line] = replaced(docs[case.line][1], case.path, case.value)
        path.write_bytes(b"\n".join(lines))
        # What the events tell, and no snapshot of it.
        path.with_name("run.json").unlink(missing_ok=True)


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    sample = Sample(tmp_path)
    monkeypatch.setenv("AGENTRUN_ROOT", str(sample.root))
    monkeypatch.setenv("AGENTRUN_CONFIG", sample.config)
    # Made once for each command: a fifth of the time of thousands.
    made = functools.cache(lambda word: command_for([word]))
    monkeypatch.setattr(chosen, "command_for", lambda words: made(words[0]))
    return sample


def commands(case: Case) -> list[list[str]]:
    session = case.session
    run = f"{session}/{case.name.split('/')[2] if '/runs/' in case.name else 'run-1'}"
    wide = [
        ["ls"], ["show", session, "--messages"], ["show", run], ["show", run, "--operations"],
        ["show", run, "--timeline"], ["show", run, "--report"], ["export", session], ["fork", session], ["search", "e"],
    ] if case.line is not None or case.name.endswith("session.json") else []  # fmt: skip
    written = {
        "waits": [["send", "waits", "more", "--if-busy", "queue", "--agent", "analyst", "--detach"]],
        "lost": [["steer", "lost", "more", "--key", "k1"], ["steer", "lost", "another"]],
    }.get(session, [["rename", session, "other"]])
    recovered = [] if session in OVER else [["recover", "--dry-run"], ["recover"]]
    return [
        ["ls", "--json"], ["show", session], ["show", run, "--json"], *wide, ["check", "--json"], ["check", "--repair"],
        *written, *recovered,
    ]  # fmt: skip


def try_all(sample: Sample, cases: Sequence[Case], capfd: pytest.CaptureFixture[str]) -> None:
    wrong: dict[str, str] = {}
    for case in cases:
        sample.break_it(case)
        for words in commands(case):
            code = run(words)
            out, err = capfd.readouterr()
            if code == BUG:
                where = [line for line in err.splitlines() if "File " in line][-1:]
                wrong.setdefault(f"{words[0]} {where}", f"{case}: {' '.join(words)}\n{err[-600:]}")
            if words == ["ls", "--json"]:
                listed = {json.loads(line)["session"]["sessionId"] for line in out.splitlines()}
                assert {*OVER} - {case.session} <= listed, case
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong.values())


@pytest.mark.slow
def test_a_sample_of_wrong_types_is_no_bug(sample: Sample, capfd: pytest.CaptureFixture[str]) -> None:
    cases = [case for case in sample.cases() if case.session in OVER]
    try_all(sample, cases[::150], capfd)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(8))
def test_no_wrong_type_is_a_bug(part: int, sample: Sample, capfd: pytest.CaptureFixture[str]) -> None:
    try_all(sample, list(sample.cases())[part::8], capfd)
