"""A run with a damaged event and no snapshot: what else is known of it stays so, and nothing of it is begun again.

Promise 2. # covers A58 A62 A68 B63; case C1
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrun.commands import stops
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.recovery import recover
from agentrun.errors import CorruptRecord
from agentrun.records.run import Run
from agentrun.states import RunStatus
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    return Tree(str(tmp_path / "root"), "ann").create_session(title="t", session_id="s")


def log_of(run_dir: RunDir) -> Path:
    return Path(run_dir.directory.path, "operations.jsonl")


def damage(run_dir: RunDir, number: int) -> None:
    """Puts NUL bytes over an event, and takes the snapshot away."""
    lines = log_of(run_dir).read_bytes().splitlines(keepends=True)
    lines[number] = b"\0" * (len(lines[number]) - 1) + b"\n"
    log_of(run_dir).write_bytes(b"".join(lines))
    Path(run_dir.directory.path, "run.json").unlink(missing_ok=True)


def end_of(run: Run) -> tuple[object, ...]:
    return run.status, run.terminal_status, run.terminal_at, run.report, run.returned_inputs


def test_what_has_ended_stays_so_whatever_else_is_damaged(session: SessionDir) -> None:
    trees.whole_life(session)
    for run_id in ("run-1", "run-2", "run-3"):
        whole, ended = log_of(session.run(run_id)).read_bytes(), end_of(session.run(run_id).load())
        for number in range(whole.count(b"\n") - 1):
            damage(session.run(run_id), number)
            found = session.run(run_id).load()
            assert end_of(found) == ended, (run_id, number)
            # What the first event says stands in the line of the prompt, too.
            assert found.unread_events == (number > 0), (run_id, number)
            log_of(session.run(run_id)).write_bytes(whole)


def test_of_an_end_that_cannot_be_read_nobody_makes_a_beginning(session: SessionDir) -> None:
    trees.completed(session)
    damage(session.run("run-1"), log_of(session.run("run-1")).read_bytes().count(b"\n") - 1)
    view = session.run("run-1").view()
    assert (view.status, view.executor, view.run.unread_events) == (RunStatus.RECONCILING, "lost", 1)


@pytest.fixture
def lost(session: SessionDir) -> bytes:
    """The events of a run whose executor died over a write."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    executor.die()
    return log_of(session.run("run-1")).read_bytes()


def test_a_run_that_was_begun_is_lost_and_is_not_begun_again(session: SessionDir, lost: bytes, tmp_path: Path) -> None:
    place = Place(Tree(str(tmp_path / "root"), "ann"), None, dict(os.environ))
    for number in range(1, lost.count(b"\n")):
        damage(session.run("run-1"), number)
        run_dir = session.run("run-1")
        before = log_of(run_dir).read_bytes()
        for _ in range(2):
            view = run_dir.view()
            assert (view.status, view.executor) == (RunStatus.RECONCILING, "lost"), number
            assert view.run.unread_events == 1, number
            # Refused each time, and the lock is let go of.
            with pytest.raises(CorruptRecord, match="1 of its events cannot be read"):
                recover(place, session, session.run("run-1"))
        with pytest.raises(CorruptRecord), writing(session) as writer:
            session.run("run-1").claim(writer, lease_seconds=60, timeout=None)
        assert log_of(run_dir).read_bytes() == before
        log_of(run_dir).write_bytes(lost)


def test_it_is_ended_by_a_cancel(session: SessionDir, lost: bytes, tmp_path: Path) -> None:
    place = Place(Tree(str(tmp_path / "root"), "ann"), None, dict(os.environ))
    damage(session.run("run-1"), 2)
    assert stops.cancel(place, Target(session, "run-1"), "enough").status is RunStatus.CANCELLED
    run = session.run("run-1").load()
    assert [each.operation_id for each in run.unresolved_operations] == ["op-2"]
    assert (run.unread_events, session.active()) == (1, None)
