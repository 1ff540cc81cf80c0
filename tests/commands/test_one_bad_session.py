"""Whatever lies in a session's place and is none hides no other session, from no command that goes through all of them.

# covers promise 2 and 14. case C21.
"""

import io
import os
import shutil
from pathlib import Path

import pytest

from agentrun.commands import listing
from agentrun.commands.archiving import pack_all
from agentrun.commands.checking import check
from agentrun.commands.children import child_views
from agentrun.commands.kinship import findings_of_children
from agentrun.commands.patrol import Patrol
from agentrun.commands.place import Place
from agentrun.commands.searching import search
from agentrun.errors import AgentrunError, Denied
from agentrun.records.finding import Kind
from agentrun.records.views import Hit
from agentrun.states import EventType, RunStatus
from agentrun.store.inbox import Order
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint

KINDS = ("file", "fifo", "symlink", "loop", "dangling")


@pytest.fixture
def place(tree: Tree, session: SessionDir) -> Place:
    """A session that is well, and one whose run has lost its executor."""
    trees.completed(session, "hello")
    lost = tree.create_session(session_id="lost")
    Executor(lost, trees.accept(lost, "hello").run_id).die()
    return Place(tree, None, {})


def plant(path: Path, kind: str, outside: Path) -> None:
    match kind:
        case "file":
            path.write_bytes(b"x")
        case "fifo":
            os.mkfifo(path)
        case "symlink":
            path.symlink_to(outside)
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to(outside / "nowhere")


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_in_a_session_s_place_hides_no_other(kind: str, place: Place, tmp_path: Path) -> None:
    tree = place.tree
    # What a link leads to is a session, with a run that is not over: it is none of this tree.
    outside = tmp_path / "outside"
    shutil.copytree(tree.path_of("lost"), outside)
    plant(Path(tree.path_of("README")), kind, outside)
    before = fingerprint(outside)

    damage: list[AgentrunError] = []
    assert [row.session.session_id for row in listing.rows(tree, on_damage=damage)] == ["lost", "s1"]
    first: list[AgentrunError] = []
    rows, is_more = listing.first_rows(tree, 2, "", None, None, False, first)
    assert ([row.session.session_id for row in rows], is_more) == (["lost", "s1"], False)
    found = list(search(tree, "hello"))
    assert {each.session_id for each in found if isinstance(each, Hit)} == {"lost", "s1"}
    told: list[AgentrunError] = []
    patrol = Patrol(place, told.append)
    assert [each.session_id for each in patrol.dry_run()] == ["lost"]
    assert [each.session_id for each in patrol.once()] == ["lost"]
    assert [each.session_id for each in patrol.watch(lambda _: True)] == ["lost"]
    for errors in (damage, first, [each for each in found if not isinstance(each, Hit)], told):
        assert errors
        assert all(isinstance(each, Denied) and "README" in each.message for each in errors)
    assert [(each.session_id, each.kind) for each in check(place, None, repair=False) if each.is_wrong] == [
        ("README", Kind.UNREADABLE)
    ]
    packed = pack_all(tree, io.BytesIO())
    assert packed.session_ids == ("s1",)
    assert len(packed.refused) == 2  # and the one that is not over
    assert tree.find("@last").session_id == "lost"
    assert tree.written(["README", "s1"]).keys() == {"README", "s1"}
    assert fingerprint(outside) == before


def test_of_a_session_that_only_shows_that_there_are_more_no_more_is_read(place: Place) -> None:
    Path(place.tree.path_of("s1"), "messages.jsonl").unlink()
    for status, more in ((None, True), (RunStatus.RECONCILING, False)):
        damage: list[AgentrunError] = []
        rows, is_more = listing.first_rows(place.tree, 1, "", status, None, False, damage)
        assert ([row.session.session_id for row in rows], is_more) == (["lost"], more)
        assert len(damage) == (0 if more else 1), "the status of a session is told by its run alone"


def test_of_what_is_removed_or_being_made_nothing_is_said(place: Place) -> None:
    """A session is noted before it is made: a patrol that watches may come in between."""
    place.tree.session("s1").activity.note("in-the-making")
    told: list[AgentrunError] = []
    assert [each.session_id for each in Patrol(place, told.append).watch(lambda _: True)] == ["lost"]
    assert told == []
    assert place.tree.listed("in-the-making") is None


def test_a_session_of_a_child_that_cannot_be_read_does_not_hide_the_parent(place: Place) -> None:
    tree = place.tree
    parent = Executor(tree.create_session(session_id="parent"), trees.accept(tree.session("parent")).run_id)
    began = {"sessionId": "parent", "runId": "run-1", "operationId": "op-2"}
    parent.ask_model("op-1")
    for name in ("child", "other"):
        child = tree.create_session(session_id=name)
        trees.accept(child, order=Order(parent_run=began))
        parent.append(EventType.RUN_CHILD_ANNOUNCED, operationId="op-2", sessionId=name, afterSeq=0, actor=trees.ACTOR)
    parent.start_tool("op-2")
    parent.append(EventType.TOOL_FINISHED, operationId="op-2", status="unknown", mayHaveEffects=True, attempt=1)
    parent.die()
    run = tree.session("parent").run("run-1").load()
    delegated = run.unresolved_operations[0]._replace(name="delegate")
    Path(tree.path_of("child"), "messages.jsonl").unlink()
    told: list[str] = []
    assert [child.view.run.session_id for child in child_views(place, run, told)] == ["other"]
    assert "child/messages.jsonl" in told[0]
    assert findings_of_children(place, run, [delegated]) == {}
