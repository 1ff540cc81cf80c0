"""Removing a session: in one step it is gone, with whatever lies in it, and nobody brings it back.

# covers A66 A70 B7
# case C27
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.commands import listing, sessions
from agentrun.errors import AgentrunError, NotFound, SlotTaken, Unresolved
from agentrun.records.finding import Kind
from agentrun.store.check import check_tree
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint


def sessions_of(tree: Tree) -> Path:
    return Path(tree.root, "accounts", tree.account, "sessions")


def remove(tree: Tree, session: SessionDir, *, force: bool = False) -> None:
    sessions.remove(tree, session, force=force)


def test_what_is_removed_is_gone_with_all_its_files(tree: Tree, session: SessionDir) -> None:
    other = tree.create_session(session_id="s2")
    trees.completed(other)
    kept = fingerprint(other.directory.path)
    trees.completed(session)
    (Path(session.directory.path) / "messages.jsonl.torn-7").write_bytes(b"left over")
    remove(tree, session)
    assert [path.name for path in sessions_of(tree).iterdir()] == ["s2"]
    assert list(tree.recent_ids()) == tree.session_ids() == ["s2"]
    with pytest.raises(NotFound):
        tree.session("s1")
    assert fingerprint(other.directory.path) == kept


def test_the_name_is_free_afterwards(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    remove(tree, session)
    again = tree.create_session(session_id="s1")
    assert (again.run_ids(), again.tail(5)) == ([], [])


@pytest.mark.parametrize(
    ("leave", "standing"),
    [
        ("accepted", "queued"),
        ("executed", "running"),
        ("waiting", "waiting_input"),
        ("lost", "not over, though its executor is gone"),
    ],
)
def test_a_run_that_is_not_over_keeps_its_session(tree: Tree, session: SessionDir, leave: str, standing: str) -> None:
    run_dir = trees.accept(session)
    if leave != "accepted":
        executor = Executor(session, run_dir.run_id)
        executor.deliver()
        if leave == "waiting":
            executor.ask()
        if leave in ("waiting", "lost"):
            executor.die()
    before = fingerprint(session.directory.path)
    for force in (False, True):
        with pytest.raises(SlotTaken, match=f"s1/run-1 is {standing}; "):
            remove(tree, session, force=force)
    assert fingerprint(session.directory.path) == before


def test_an_executor_that_is_about_to_leave_is_waited_for(tree: Tree, session: SessionDir) -> None:
    run_dir = trees.accept(session)
    executor = Executor(session, run_dir.run_id)
    executor.die = lambda: None  # type: ignore[method-assign]
    executor.deliver()
    executor.ask_model()
    executor.complete()
    with pytest.raises(SlotTaken, match="being left"):
        remove(tree, session)
    Executor.die(executor)
    remove(tree, session)


def test_what_nobody_knows_is_not_forgotten_unless_it_is_given_up(tree: Tree, session: SessionDir) -> None:
    # The run in question need not be the newest one.
    run_dir = trees.accept(session)
    executor = Executor(session, run_dir.run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    trees.cancel(session, "run-1")
    executor.wind_down()
    trees.completed(session)
    resources = sessions_of(tree).parent / "resources"
    resources.mkdir()
    (resources / "sheet").write_text("s1/run-1/op-2")
    with pytest.raises(Unresolved, match="op-2 export"):
        remove(tree, session)
    assert session.run("run-1").load().unresolved_operations
    remove(tree, session, force=True)
    assert tree.session_ids() == []
    # The claim is not the session's: what it protects is as unknown as before.
    assert (resources / "sheet").read_text() == "s1/run-1/op-2"


def test_a_writer_that_comes_too_late_writes_nothing(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    late = tree.session("s1")
    remove(tree, session)
    with pytest.raises(NotFound, match="has been removed"):
        trees.accept(late)
    assert list(sessions_of(tree).iterdir()) == []
    # Also where another session has the name by now.
    tree.create_session(session_id="s1")
    before = fingerprint(tree.root)
    with pytest.raises(NotFound, match="has been removed"):
        trees.accept(late)
    assert fingerprint(tree.root) == before


def test_whoever_waits_for_the_lock_learns_that_there_is_nothing_left(tree: Tree, session: SessionDir) -> None:
    waiting = tree.session("s1")
    said: list[AgentrunError] = []

    def write() -> None:
        try:
            trees.accept(waiting)
        except AgentrunError as error:
            said.append(error)

    thread = threading.Thread(target=write)
    with writing(session) as writer:
        thread.start()
        tree.remove_session(writer)
    thread.join()
    tree.finish_removals()
    assert [type(error) for error in said] == [NotFound]
    assert list(sessions_of(tree).iterdir()) == []


def test_a_removal_that_was_interrupted_is_invisible_and_finished_by_the_next(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    with writing(session) as writer:
        tree.remove_session(writer)
    (hidden,) = sessions_of(tree).iterdir()
    (hidden / "session.json").unlink()  # it came so far
    assert tree.session_ids() == list(tree.recent_ids()) == list(listing.rows(tree)) == []
    with pytest.raises(NotFound):
        tree.find("s1")
    remove(tree, tree.create_session(session_id="s2"))
    assert list(sessions_of(tree).iterdir()) == []


def test_links_are_removed_and_not_followed(tree: Tree, session: SessionDir, tmp_path: Path) -> None:
    # case C21
    trees.completed(session)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "kept").write_text("kept")
    scratch = trees.run_path(session, "run-1", "scratch")
    (scratch / "link").symlink_to(outside)
    (scratch / "file").hardlink_to(outside / "kept")
    os.mkfifo(scratch / "fifo")
    remove(tree, session)
    (sessions_of(tree) / ".gone-planted-1").symlink_to(outside)
    tree.finish_removals()
    assert (outside / "kept").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o750


def test_what_a_tool_has_closed_or_nested_deeply_goes_too(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    scratch = trees.run_path(session, "run-1", "scratch")
    closed = scratch / "closed" / "below"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0o500)
    fd = os.open(scratch, os.O_RDONLY)
    for _ in range(3000):  # deeper than any path may be long
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    remove(tree, session)
    assert list(sessions_of(tree).iterdir()) == []


@pytest.mark.slow
def test_of_many_that_remove_one_succeeds_and_writers_lose_nothing(crew: Callable[..., Any], tree: Tree) -> None:
    setup = f"""
from agentrun.commands import sessions
from agentrun.store.tree import Tree
from agentrun.testing import trees
tree = Tree({tree.root!r}, "ann")
"""
    work = """
name, number = argument["session"], argument["turn"]
session = tree.session(name)
if number % 2:
    return trees.completed(session)
sessions.remove(tree, session, force=False)
return "removed"
"""
    members = crew(6, work, setup)
    for turn in range(6):
        name = f"r{turn}"
        tree.create_session(session_id=name)
        for number, member in enumerate(members.members):
            assert member.stdin is not None
            member.stdin.write(f'{{"session": "{name}", "turn": {number}}}\n')
            member.stdin.flush()
        results = members.results()
        removed = [result for result in results if result.get("ok") == "removed"]
        refused = {result["error"] for result in results if "error" in result}
        assert len(removed) <= 1, results
        # A writer beside it was told that it is gone, or that another run has the slot; a remover likewise.
        assert refused <= {"NotFound", "SlotTaken", "AgentrunError", "Conflict", "FencedOut"}, results
        assert (name in tree.session_ids()) is not bool(removed)
    assert not [path for path in sessions_of(tree).iterdir() if path.name.startswith(".")]


def test_a_check_names_what_a_removal_left_and_a_repair_finishes_it(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    with writing(session) as writer:
        tree.remove_session(writer)
    before = fingerprint(tree.root)
    (found,) = check_tree(tree, repair=False)
    assert (found.kind, found.is_wrong, found.is_repaired) == (Kind.LEFTOVER, False, False)
    assert fingerprint(tree.root) == before
    (found,) = check_tree(tree, repair=True)
    assert found.is_repaired
    assert list(sessions_of(tree).iterdir()) == list(check_tree(tree, repair=True)) == []
