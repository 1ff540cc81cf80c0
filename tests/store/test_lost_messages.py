"""Messages that were cut off where a line ends: `check` says so, and no number that was told is used again.

What tells of them is in other files: each run knows the messages that began it, that reached it and that came back, and
a key knows the number of its message.

Promises 2 and 3. # covers A58 B63; case C1
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentrun.records.finding import Kind
from agentrun.states import EventType
from agentrun.store.check import check_session
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path / "root"), "ann")


def log_of(session: SessionDir) -> Path:
    return Path(session.directory.path, "messages.jsonl")


def cut(session: SessionDir, kept: int) -> None:
    lines = log_of(session).read_bytes().splitlines(keepends=True)
    log_of(session).write_bytes(b"".join(lines[:kept]))


def seqs(session: SessionDir) -> list[int]:
    return [json.loads(line)["seq"] for line in log_of(session).read_bytes().splitlines()]


def kinds(tree: Tree, *, repair: bool = False) -> dict[Kind, str]:
    found = check_session(tree, "s", repair=repair)
    return {each.kind: each.said for each in found if each.is_wrong and each.path.endswith("messages.jsonl")}


def test_wherever_it_is_cut_it_is_noticed_and_goes_on_above(tree: Tree, tmp_path: Path) -> None:
    session = tree.create_session(title="t", session_id="s")
    trees.whole_life(session)
    numbers = seqs(session)
    told = session.run("run-3").load().message_seq
    assert told < len(numbers)
    for kept in range(told):
        shutil.copytree(tree.root, tmp_path / str(kept))
        other = Tree(str(tmp_path / str(kept)), "ann")
        cut(other.session("s"), kept)
        # It cannot be repaired, and a repair adds nothing to what is there.
        for repair in (False, True):
            assert kinds(other, repair=repair) == {
                Kind.MISSING: f"ends with number {kept}, though run-3 tells of message {told}"
            }
        assert len(seqs(other.session("s"))) == kept
        run_dir = trees.accept(other.session("s"), "next", key="k2")
        assert run_dir.run_id == "run-4"
        *before, new = seqs(other.session("s"))
        assert before == numbers[:kept]
        assert new > numbers[-1]
        assert trees.add(other.session("s"), "run-4", "steer", "and").seq == new + 1
        assert Kind.GAP in kinds(other)


def test_a_key_tells_of_its_message(tree: Tree) -> None:
    session = tree.create_session(title="t", session_id="s")
    run_id = trees.accept(session).run_id
    trees.add(session, run_id, "steer", "one", key="k1")
    trees.add(session, run_id, "steer", "two", key="k2")
    cut(session, 2)
    # Its writer may have died between the hint and the message.
    assert kinds(tree) == {}
    cut(session, 1)
    assert kinds(tree) == {Kind.MISSING: "ends with number 1, though a file in keys/ tells of message 2"}


def test_what_was_delivered_to_a_run_that_goes_on_is_not_numbered_again(tree: Tree) -> None:
    session = tree.create_session(title="t", session_id="s")
    executor = Executor(session, trees.accept(session).run_id)
    trees.add(session, "run-1", "steer", "that way")
    executor.append(EventType.INPUT_DELIVERED, messageSeqs=[1, 2], mode="prompt", turnId="turn-1")
    executor.ask_model()
    cut(session, 1)
    assert Kind.MISSING in kinds(tree)
    assert trees.add(tree.session("s"), "run-1", "steer", "this way").seq > 2
    cut(session, 0)
    # The executor looks for nothing that others left; the end of its run is told above what it had.
    executor.complete()
    assert seqs(session)[-1] > 2
