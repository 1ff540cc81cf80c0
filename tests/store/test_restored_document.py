"""A session whose document is lost is not lost with it: a repair makes it again from what else is there.

Covers A11, A19, A64, promise 2.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.errors import CorruptRecord
from agentrun.records.finding import Kind
from agentrun.store.check import check_session
from agentrun.store.inbox import Order
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor


def _gone(path: Path) -> None:
    path.unlink()


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def _overwritten(path: Path) -> None:
    path.write_bytes(bytes(300))


def _of_no_session(path: Path) -> None:
    path.write_text("{}")


def document(session: SessionDir) -> Path:
    return Path(session.directory.path, "session.json")


@pytest.mark.parametrize("damage", [_gone, _torn, _overwritten, _of_no_session])
def test_a_repair_makes_a_lost_document_again_and_the_session_goes_on(
    tree: Tree, session: SessionDir, damage: Callable[[Path], None]
) -> None:
    trees.completed(session)
    Executor(session, trees.accept(session, order=Order(agent="analyst")).run_id).die()
    trees.accept(session, "behind it")
    damage(document(session))
    bytes_before = document(session).read_bytes() if document(session).exists() else None
    with pytest.raises(CorruptRecord) as refused:
        session.read()
    assert "agentrun check s1 --repair" in str(refused.value.hint)
    repaired = list(check_session(tree, "s1", repair=True))
    assert [(finding.kind, finding.is_repaired) for finding in repaired] == [(Kind.UNREADABLE, True)]
    assert list(check_session(tree, "s1", repair=False)) == []
    kept = Path(session.directory.path, "session.json.damaged-0")
    assert (kept.read_bytes() if kept.exists() else None) == bytes_before
    made = session.read()
    assert (made.title, made.agent, made.forked_from, made.archived) == ("", None, None, False)
    assert made.created_at == next(session.messages_since(1)).at
    # Everything is there, and it goes on with the next numbers.
    assert [run_dir.run_id for run_dir in map(session.run, session.newest_run_ids(9))] == ["run-3", "run-2", "run-1"]
    assert trees.accept(session).run_id == "run-4"
    assert session.active() == "run-2"


@pytest.mark.parametrize("own", [0, 2])
def test_what_was_copied_into_a_fork_is_not_taken_for_its_own(tree: Tree, session: SessionDir, own: int) -> None:
    for _ in range(3):
        trees.completed(session)
    fork = tree.fork_session(session, 6)
    for _ in range(own):
        trees.completed(fork)
    document(fork).unlink()
    list(check_session(tree, fork.session_id, repair=True))
    assert fork.read().copied == 6
    assert list(check_session(tree, fork.session_id, repair=False)) == []
    # None of the prompts that were said elsewhere is executed here.
    assert fork.run_ids() == [f"run-{number}" for number in range(own, 0, -1)]
    assert trees.accept(fork).run_id == f"run-{own + 1}"


def test_a_document_of_another_session_is_left_as_it_is(tree: Tree, session: SessionDir) -> None:
    other = document(tree.create_session(session_id="s2"))
    document(session).write_bytes(other.read_bytes())
    (finding,) = check_session(tree, "s1", repair=True)
    assert (finding.kind, finding.is_repaired) == (Kind.UNREADABLE, False)
    assert document(session).read_bytes() == other.read_bytes()


def test_without_a_conversation_nothing_is_made_up(tree: Tree, session: SessionDir) -> None:
    document(session).unlink()
    Path(session.directory.path, "messages.jsonl").unlink()
    found = list(check_session(tree, "s1", repair=True))
    assert {finding.kind for finding in found} == {Kind.UNREADABLE, Kind.MISSING}
    assert not any(finding.is_repaired for finding in found)
    assert not document(session).exists()


def test_a_copied_prompt_is_not_executed_although_its_own_first_line_is_damaged(
    tree: Tree, session: SessionDir
) -> None:
    for _ in range(3):
        trees.completed(session)
    fork = tree.fork_session(session, 6)
    trees.completed(fork)
    trees.completed(fork)
    log = Path(fork.directory.path, "messages.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    lines[6] = bytes(len(lines[6]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    document(fork).unlink()
    list(check_session(tree, fork.session_id, repair=True))
    assert fork.run_ids() == ["run-2", "run-1"]
    assert not [finding for finding in check_session(tree, fork.session_id, repair=False) if finding.is_wrong]
