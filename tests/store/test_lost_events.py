"""A run whose log was lost, or cut where a record ends, is not begun again, and `check` says what is not there.

Each case loses something and keeps something that tells of it. A log that was never made is made again all the same:
`test_redo` has those cases.

Promises 2, 3, 5, 11, 18. # covers A58 A62 B63; case C1
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.commands import stops
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.recovery import recover
from agentrun.errors import CorruptRecord
from agentrun.records.finding import Kind
from agentrun.records.message import ENDED
from agentrun.states import RunStatus
from agentrun.store.check import check_session
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint, run_path

S = RunStatus


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path / "root"), "ann")


@pytest.fixture
def session(tree: Tree) -> SessionDir:
    return tree.create_session(title="t", session_id="s")


# --- what is lost


def the_log(run: Path) -> None:
    (run / "operations.jsonl").unlink()


def all_of_the_log(run: Path) -> None:
    (run / "operations.jsonl").write_bytes(b"")


def most_of_the_log(run: Path) -> None:
    lines = (run / "operations.jsonl").read_bytes().splitlines(keepends=True)
    (run / "operations.jsonl").write_bytes(b"".join(lines[:3]))


def all_but_the_first_event(run: Path) -> None:
    lines = (run / "operations.jsonl").read_bytes().splitlines(keepends=True)
    (run / "operations.jsonl").write_bytes(lines[0])


def the_directory(run: Path) -> None:
    shutil.rmtree(run)


def without_snapshot(lose: Callable[[Path], None]) -> Callable[[Path], None]:
    def both(run: Path) -> None:
        lose(run)
        (run / "run.json").unlink()

    both.__name__ = f"{lose.__name__}_and_the_snapshot"
    return both


def only(name: str) -> Callable[[Path], None]:
    """Of the run's files all but `name` are lost."""

    def lose(run: Path) -> None:
        for path in run.iterdir():
            if path.name != name:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    lose.__name__ = f"all_but_{name}"
    return lose


# --- of an ended run

ENDED_CASES = [
    (the_log, S.COMPLETED),
    (all_of_the_log, S.COMPLETED),
    (most_of_the_log, S.COMPLETED),
    (all_but_the_first_event, S.COMPLETED),
    (the_directory, S.COMPLETED),
    (without_snapshot(the_log), S.COMPLETED),
    (without_snapshot(all_of_the_log), S.COMPLETED),
    # The conversation tells that it ended; of what its events say, the end is missing.
    (without_snapshot(most_of_the_log), S.RECONCILING),
    (without_snapshot(all_but_the_first_event), S.RECONCILING),
]


@pytest.mark.parametrize(("lose", "status"), ENDED_CASES, ids=lambda each: getattr(each, "__name__", None))
def test_what_has_ended_is_neither_made_nor_begun_again(
    tree: Tree, session: SessionDir, lose: Callable[[Path], None], status: RunStatus
) -> None:
    trees.completed(session)
    lose(run_path(session, "run-1"))
    before = fingerprint(tree.root)
    found = list(check_session(tree, "s", repair=False))
    assert [each.run_id for each in found if each.kind is Kind.MISSING and each.is_wrong] == ["run-1"], found
    assert tree.session("s").run("run-1").view().status is status
    assert fingerprint(tree.root) == before
    assert any(each.is_wrong for each in check_session(tree, "s", repair=True))
    with writing(tree.session("s")):
        pass
    fresh = tree.session("s")
    assert fresh.run("run-1").view().status is status
    assert fresh.active() == (None if status is S.COMPLETED else "run-1")
    assert [message.mode for message in fresh.messages_since(1)] == ["prompt", "report"]
    if status is S.RECONCILING:
        with pytest.raises(CorruptRecord), writing(fresh) as writer:
            fresh.run("run-1").claim(writer, lease_seconds=60, timeout=None)
    else:
        assert trees.accept(fresh, "next").run_id == "run-2"
        assert fresh.active() == "run-2"
        assert tree.session("s").run("run-1").view().status is status


def test_an_end_that_only_the_conversation_tells_is_told_as_it_was(tree: Tree, session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    trees.cancel(session, "run-1")
    executor.wind_down()
    the_directory(run_path(session, "run-1"))
    run = tree.session("s").run("run-1").load()
    assert (run.status, run.terminal_status) == (S.CANCELLED, S.CANCELLED)


# --- of a run that goes on


class Open(NamedTuple):
    """What is lost of a run whose executor died over a write, and what shows that it was begun."""

    lose: Callable[[Path], None]
    asks: bool = False


OPEN_CASES = [
    Open(the_log),
    Open(all_of_the_log),
    Open(most_of_the_log),
    Open(all_but_the_first_event),
    Open(without_snapshot(all_but_the_first_event)),
    Open(only("lease.json")),
    Open(only("blobs")),
    Open(only("report.draft.md")),
    Open(only("run.json")),
    Open(only("scratch")),
    Open(the_directory, asks=True),
]


@pytest.mark.parametrize("case", OPEN_CASES, ids=lambda case: case.lose.__name__)
def test_what_was_begun_is_not_begun_again_and_only_a_cancel_ends_it(
    tree: Tree, session: SessionDir, case: Open, tmp_path: Path
) -> None:
    place = Place(tree, None, dict(os.environ))
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.keep(b"a big result")
    executor.write_draft("so far")
    executor.start_tool()
    run_path(session, "run-1", "scratch", "made by a tool").touch()
    if case.asks:
        executor.ask()
    with writing(session) as writer:
        executor.run_dir.write_snapshot(writer)
    executor.die()
    case.lose(run_path(session, "run-1"))

    found = list(check_session(tree, "s", repair=True))
    assert [each.run_id for each in found if each.kind is Kind.MISSING and each.is_wrong] == ["run-1"], found
    view = tree.session("s").run("run-1").view()
    assert (view.status, view.executor) == (S.RECONCILING, "lost")
    assert view.run.unread_events > 0
    fresh = tree.session("s")
    with pytest.raises(CorruptRecord, match="does not go on"):
        recover(place, fresh, fresh.run("run-1"))
    with pytest.raises(CorruptRecord), writing(fresh) as writer:
        fresh.run("run-1").claim(writer, lease_seconds=60, timeout=None)
    assert fresh.active() == "run-1"

    ended = tree.session("s")
    assert stops.cancel(place, Target(ended, "run-1"), "enough").status is S.CANCELLED
    assert [message.mode for message in ended.messages_since(1)][-1] == ENDED
    assert ended.active() is None
    run_path(session, "run-1", "run.json").unlink()
    assert tree.session("s").run("run-1").load().status is S.CANCELLED
    assert trees.accept(ended, "next").run_id == "run-2"


def test_an_old_run_that_was_lost_can_be_ended_too(tree: Tree, session: SessionDir) -> None:
    """A later run was accepted when it was over: nobody makes it again."""
    trees.completed(session)
    messages = Path(session.directory.path, "messages.jsonl")
    trees.completed(session)
    the_directory(run_path(session, "run-1"))
    lines = messages.read_bytes().splitlines(keepends=True)
    messages.write_bytes(b"".join([lines[0], b"\0" * (len(lines[1]) - 1), b"\n", *lines[2:]]))
    view = tree.session("s").run("run-1").view()
    assert (view.status, view.executor) == (S.RECONCILING, "lost")
    place = Place(tree, None, dict(os.environ))
    assert stops.cancel(place, Target(tree.session("s"), "run-1"), "enough").status is S.CANCELLED


def test_what_a_claim_leaves_that_did_not_come_to_its_lease_is_no_trace(tree: Tree, session: SessionDir) -> None:
    """A power cut after the directories were synced and before the lease was: the run is made again."""
    trees.accept(session)
    all_of_the_log(run_path(session, "run-1"))
    run_path(session, "run-1", "scratch").mkdir()
    run_path(session, "run-1", ".new-room-0").touch()
    run_path(session, "run-1", "cancel").touch()
    assert {each.kind for each in check_session(tree, "s", repair=False)} == {Kind.RUN, Kind.SLOT, Kind.ORPHAN}
    with writing(session):
        pass
    assert tree.session("s").run("run-1").load().status is S.CANCELLED
