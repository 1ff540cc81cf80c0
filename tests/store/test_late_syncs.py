"""What may be synced behind the lock is synced before anybody is told, and before anything is built on it.

Covers A50, B1, promises 1 and 12; write-order, step 6 of redo.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.records.event import Event
from agentrun.states import EventType
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor

E = EventType

LATE = {"operationId": "op-1", "status": "succeeded", "evidence": "told later"}
REMOTE = {"operationId": "op-1", "remoteId": "export-1"}

# One hold that only records, and one in which the snapshot is written by another handle, as another process has it.
WRITER = """\
import os, sys
from agentrun.errors import AgentrunError
from agentrun.states import EventType
from agentrun.store.redo import recording
from agentrun.store.tree import Tree
session = Tree(sys.argv[1], "ann").session("s1")
run_dir, other = session.run("run-1"), session.run("run-1")
run_dir.on_event = lambda event: os.write(1, b"told of %d\\n" % event.seq)
payload = {"operationId": "op-1", "status": "succeeded", "evidence": "told later"}
try:
    for writes_on in (False, True):
        with recording(session) as writer:
            run_dir.append_as_anyone(writer, EventType.OPERATION_LATE_RESULT, payload)
            if writes_on:
                other.write_snapshot(writer)
except AgentrunError as error:
    os.write(1, error.message.encode() + b"\\n")
"""


def traced(tree: Tree, trace: Path, *options: str) -> tuple[list[str], str]:
    """What the writer calls of what is asked about, each as `NAME WHAT`, and what it prints."""
    argv = ["strace", "-f", "-y", "-qq", "-s", "200", "-o", str(trace), *options]
    argv += ["-e", "trace=write,flock,fdatasync,renameat,renameat2,rename", sys.executable, "-c", WRITER, tree.root]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    calls = []
    for line in trace.read_text().splitlines():
        call = line.split(" ", 1)[1].strip()
        for name, marks in MARKS.items():
            if all(mark in call for mark in marks):
                calls.append(name)
    return calls, done.stdout


MARKS = {
    "append": ("write(", "operations.jsonl>"),
    "unlock": ("flock(", "LOCK_UN"),
    "sync": ("fdatasync(", "operations.jsonl>"),
    "tell": ("write(1", "told of"),
    "snapshot": ("rename", '"run.json"'),
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows the order of the calls")
def test_it_is_synced_behind_the_lock_before_it_is_told_and_within_it_before_a_snapshot(
    tree: Tree, session: SessionDir, tmp_path: Path
) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.ask_model()
    calls, said = traced(tree, tmp_path / "trace")
    assert calls == [
        *("append", "unlock", "sync", "tell"),
        # Its own sync behind the lock is a second one, which finds nothing to do.
        *("append", "sync", "snapshot", "unlock", "sync", "tell"),
    ]  # fmt: skip
    last = executor.run_dir.load().applied_seq
    assert said == f"told of {last - 1}\ntold of {last}\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes the system call fail")
def test_one_that_cannot_be_made_to_last_is_told_to_nobody(tree: Tree, session: SessionDir, tmp_path: Path) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.ask_model()
    calls, said = traced(tree, tmp_path / "trace", "-e", "inject=fdatasync:error=EIO:when=1")
    assert calls == ["append", "unlock", "sync"]
    assert "whether the last record survived is unknown" in said
    assert "told of" not in said


def test_events_are_told_of_in_their_order_and_none_before_the_one_that_has_to_last_first(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.ask_model()
    run_dir, lease, heard = executor.run_dir, executor.lease, list[Event]()
    run_dir.on_event = heard.append
    with recording(session) as writer:
        run_dir.append(lease, writer, E.TOOL_REMOTE_ID, REMOTE)
        run_dir.append(lease, writer, E.TOOL_PROGRESS, {"operationId": "op-1", "text": "half"})
        assert heard == []
        run_dir.append(lease, writer, E.MODEL_REQUEST_STARTED, {"operationId": "op-2", "model": "m", "attempt": 1})
        assert [event.type for event in heard] == [E.TOOL_REMOTE_ID, E.TOOL_PROGRESS, E.MODEL_REQUEST_STARTED]
        run_dir.append(lease, writer, E.TOOL_REMOTE_ID, REMOTE)
        # What others append through a handle of their own is behind it.
        session.run("run-1").append_as_anyone(writer, E.OPERATION_LATE_RESULT, LATE)
        run_dir.current(writer)
        assert len(heard) == 3
    assert [event.type for event in heard[3:]] == [E.TOOL_REMOTE_ID, E.OPERATION_LATE_RESULT]
    assert [event.seq for event in heard] == list(range(heard[0].seq, heard[0].seq + 5))


@pytest.mark.parametrize("hold", [recording, writing])
def test_a_hold_that_ends_with_an_error_still_makes_it_last_and_tells_of_it(session: SessionDir, hold: object) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.ask_model()
    heard: list[Event] = []
    executor.run_dir.on_event = heard.append

    def record_and_fail() -> None:
        with hold(session) as writer:  # type: ignore[operator]
            executor.run_dir.append(executor.lease, writer, E.TOOL_REMOTE_ID, REMOTE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record_and_fail()
    assert [event.type for event in heard] == [E.TOOL_REMOTE_ID]
    assert os.path.getsize(executor.run_dir.events.path) == executor.run_dir.events.end
