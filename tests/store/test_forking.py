"""A fork: the same words, other runs; what is history in it is never taken for something that is still to be done.

# covers A7 A8 A18 A21 A28 B8 B12
"""

import json
from pathlib import Path

import pytest

from agentrun.commands import sessions
from agentrun.errors import CorruptRecord, NotFound
from agentrun.executor.conversation import earlier_conversation
from agentrun.store.check import check_session
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint


def lines_of(session: SessionDir) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(session.messages.path).read_bytes().split(b"\n")[:-1]]


def fork(tree: Tree, source: SessionDir, at: int | None = None) -> SessionDir:
    return tree.session(sessions.fork(tree, source, at).session.session_id)


def test_a_fork_begins_with_the_same_words(tree: Tree, session: SessionDir) -> None:
    trees.completed(session, "how many?", "Twelve.\n")
    before = fingerprint(session.directory.path)
    forked = fork(tree, session)
    assert fingerprint(session.directory.path) == before
    assert lines_of(forked) == [line | {"sessionId": forked.session_id} for line in lines_of(session)]
    document = forked.read()
    assert document.forked_from == {"sessionId": "s1", "seq": 2}
    assert (document.title, document.revision, document.remote_ids) == ("Test", 1, {})
    assert forked.run_ids() == forked.newest_run_ids(5) == []
    assert next(tree.recent_ids()) == forked.session_id


def test_lines_keep_what_this_version_does_not_know(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    path = Path(session.messages.path)
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps(json.loads(first) | {"mood": ["é", 1]}).encode() + b"\n" + rest)
    assert lines_of(fork(tree, session))[0]["mood"] == ["é", 1]


def test_runs_of_a_fork_begin_again_at_one_and_are_its_own(tree: Tree, session: SessionDir) -> None:
    for number in range(3):
        trees.completed(session, f"question {number}", f"answer {number}\n")
    forked = fork(tree, session, at=4)
    assert trees.completed(forked, "another", "its own\n") == "run-1"
    assert forked.run("run-1").report() == "its own\n"
    # The copied prompt of a run-1 is none of this session's.
    prompt = forked.prompt_of("run-1")
    assert prompt is not None
    assert (prompt.seq, prompt.text) == (5, "another")
    assert forked.prompt_of("run-2") is None
    assert [line["seq"] for line in lines_of(forked)] == [1, 2, 3, 4, 5, 6]
    assert session.run("run-1").report() == "answer 0\n"


def test_a_run_of_a_fork_is_made_again_from_its_own_prompt(tree: Tree, session: SessionDir) -> None:
    trees.completed(session, "the source's")
    forked = fork(tree, session)
    run_dir = trees.accept(forked, "the fork's")
    for path in Path(run_dir.directory.path).iterdir():
        path.unlink()
    Path(run_dir.directory.path).rmdir()
    assert trees.accept(forked, "behind it").run_id == "run-2"
    made = forked.run("run-1").load()
    assert (made.message_seq, made.session_id) == (3, forked.session_id)


def test_nothing_that_was_copied_is_delivered_or_closed_again(tree: Tree, session: SessionDir) -> None:
    run_dir = trees.accept(session, "go")
    executor = Executor(session, run_dir.run_id)
    trees.add(session, "run-1", "steer", "not that way")
    forked = fork(tree, session, at=2)
    executor.die()
    before = lines_of(forked)
    assert trees.completed(forked, "another") == "run-1"
    assert lines_of(forked)[:2] == before
    assert forked.run("run-1").load().delivered_inputs == (3,)


def test_a_key_of_the_source_is_new_in_the_fork(tree: Tree, session: SessionDir) -> None:
    trees.accept(session, "go", key="k1")
    trees.cancel(session, "run-1")
    forked = fork(tree, session)
    assert trees.accept(forked, "something else", key="k1").run_id == "run-1"


def test_of_a_run_that_is_not_over_nothing_is_taken_unasked(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    trees.accept(session, "under way")
    trees.accept(session, "behind it")
    forked = sessions.fork(tree, session, None)
    assert forked.is_cut
    assert forked.session.copied == 2
    # Asked for, it is: the words were said, whatever becomes of the run.
    assert [line["text"] for line in lines_of(fork(tree, session, at=3))][-1] == "under way"


def test_the_model_learns_whose_run_a_copied_note_is_about(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    trees.cancel(session, "run-1")
    first = fork(tree, session)
    trees.accept(first)
    trees.cancel(first, "run-1")
    second = fork(tree, first)
    run_dir = trees.accept(second)
    told = [message.run_id for message in earlier_conversation(second, run_dir.load()).messages]
    assert told == ["s1/run-1"] * 2 + [f"{first.session_id}/run-1"] * 2


def test_a_fork_can_take_no_more_than_there_is(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    before = fingerprint(tree.root)
    with pytest.raises(NotFound, match="no message 3; its last is 2"):
        fork(tree, session, at=3)
    assert fingerprint(tree.root) == before


def test_an_empty_session_can_be_forked(tree: Tree, session: SessionDir) -> None:
    forked = fork(tree, session)
    assert lines_of(forked) == []
    assert trees.completed(forked) == "run-1"


@pytest.mark.parametrize(("damaged", "offset_of"), [(2, 1), (4, 3)])
def test_damage_is_not_copied_and_leaves_nothing_behind(
    tree: Tree, session: SessionDir, damaged: int, offset_of: int
) -> None:
    # case C1
    trees.completed(session)
    trees.completed(session)
    path = Path(session.messages.path)
    lines = path.read_bytes().split(b"\n")
    lines[damaged - 1] = b"\0" * len(lines[damaged - 1])
    path.write_bytes(b"\n".join(lines))
    before = set(fingerprint(tree.root))
    with pytest.raises(CorruptRecord, match=f"message {damaged} ") as caught:
        fork(tree, session)
    assert caught.value.offset == sum(len(line) + 1 for line in lines[:offset_of])
    assert set(fingerprint(tree.root)) == before
    assert len(lines_of(fork(tree, session, at=damaged - 1))) == damaged - 1


def test_a_fork_is_whole_in_the_eyes_of_a_check(tree: Tree, session: SessionDir) -> None:
    trees.accept(session, key="k1")
    trees.cancel(session, "run-1")
    forked = fork(tree, session)
    trees.completed(forked)
    assert list(check_session(tree, forked.session_id, repair=False)) == []
