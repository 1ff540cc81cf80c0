"""Whatever is planted in a session in place of a file or directory is refused, untouched, without waiting.

Covers case C21 and promise 14.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.commands.patrol import Patrol
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError, Denied, StorageFailed
from agentrun.store.check import check_tree
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint

pytestmark = pytest.mark.slow  # many of them, and each makes a session

KINDS = ["symlink", "dangling", "directory", "fifo", "hard link", "socket"]
SECRET = b"what belongs to somebody else\n"
# What the session is read and written through; each with all that reads or writes it.
FILES = ["session.json", "messages.jsonl", "active", "runs/run-1/run.json", "runs/run-1/operations.jsonl",
         "runs/run-1/report.md", "runs/run-1/lease.json", "runs/run-1/report.draft.md"]  # fmt: skip
DIRECTORIES = ["runs", "keys", "runs/run-1", "runs/run-1/blobs", "runs/run-1/scratch"]
# Without these everything goes on: they are made anew, and nobody looks into the working space of a run that is over.
HELPS = {"runs/run-1/run.json", "runs/run-1/lease.json", "runs/run-1/report.draft.md", "runs/run-1/scratch"}


def executed(session: SessionDir, run_id: str) -> None:
    """Executes a run to its report."""
    executor = Executor(session, run_id)
    executor.deliver()
    executor.complete()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A place outside the tree, with something in it that must not be touched or told."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_bytes(SECRET)
    (place / "directory").mkdir()
    return place


def plant(path: Path, kind: str, outside: Path, *, directory: bool = False) -> None:
    """Puts something at `path`, in place of what is there."""
    if path.exists():
        path.rename(outside.parent / f"moved-{path.name}")
    target = outside / ("directory" if directory else "secret")
    match kind:
        case "symlink":
            path.symlink_to(target)
        case "dangling":
            path.symlink_to(outside / "nowhere")
        case "directory":
            path.mkdir()
        case "file":
            path.write_bytes(b"x")
        case "fifo":
            os.mkfifo(path)
        case "hard link":
            os.link(outside / "secret", path)
        case "socket":
            # A path of a socket may have a hundred bytes only.
            here = os.getcwd()
            os.chdir(path.parent)
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(path.name)
            finally:
                os.chdir(here)


def everything(tree: Tree) -> list[Callable[[], object]]:
    """All that a command may do with the session, each through fresh handles."""

    def session() -> SessionDir:
        return tree.session("s1")

    return [
        lambda: session().read(),
        lambda: session().active(),
        lambda: session().tail(5),
        lambda: list(session().messages_since(1)),
        lambda: session().newest_run_ids(3),
        lambda: session().run_ids(),
        lambda: session().changed_at(),
        lambda: session().run("run-1").view(),
        lambda: session().run("run-1").report(),
        lambda: session().run("run-1").draft(),
        lambda: session().run("run-1").lease(),
        lambda: session().run("run-1").blob("0" * 64),
        lambda: list(session().run("run-1").all_events()),
        lambda: trees.accept(session(), "next", key="k1"),
        lambda: trees.add(session(), "run-1", "steer", "x", key="k2"),
        lambda: executed(session(), session().newest_run_ids(1)[0]),
        lambda: trees.cancel(session(), "run-1"),
        lambda: list(tree.recent_ids()),
        lambda: tree.find("@last").session_id,
    ]


def try_everything(tree: Tree) -> list[AgentrunError]:
    refused = []
    for action in everything(tree):
        try:
            action()
        except AgentrunError as error:
            refused.append(error)
    return refused


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_in_place_of_a_file(tree: Tree, session: SessionDir, outside: Path, name: str, kind: str) -> None:
    trees.completed(session)
    before = fingerprint(outside)
    plant(Path(session.directory.path, name), kind, outside)
    refused = try_everything(tree)
    assert fingerprint(outside) == before
    for error in refused:
        assert isinstance(error, Denied | AgentrunError)
        assert error.exit_code != 70, error.message
        assert SECRET.decode().strip() not in error.message
    # (`active` may have two names, after a crash; one that names no run is taken away.)
    needed = ("session.json", "messages.jsonl", "active", "runs/run-1/operations.jsonl", "runs/run-1/report.md")
    if name in needed and (name, kind) != ("active", "hard link"):
        assert any(isinstance(error, Denied) and name in error.message for error in refused)
    # Nothing was read through it either.
    fresh = tree.session("s1")
    for read in (lambda: fresh.run("run-1").report(), lambda: fresh.run("run-1").draft()):
        try:
            assert SECRET.decode() not in str(read())
        except AgentrunError:
            continue


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give things to other users")
@pytest.mark.parametrize("name", [*FILES, *DIRECTORIES])
def test_what_belongs_to_somebody_else_is_neither_read_nor_written(tree: Tree, session: SessionDir, name: str) -> None:
    """He could have written it at any time, and would read whatever is put there."""
    trees.completed(session)
    path = Path(session.directory.path, name)
    if path.is_dir():
        (path / "theirs").write_bytes(SECRET)
    else:
        path.write_bytes(path.read_bytes() if path.suffix == ".json" and path.exists() else SECRET)
    for each in (path, path / "theirs") if path.is_dir() else (path,):
        os.chown(each, 65534, 65534)
    before = fingerprint(path) if path.is_dir() else path.read_bytes()
    refused = try_everything(tree)
    for error in refused:
        assert error.exit_code != 70, error.message
        assert SECRET.decode().strip() not in error.message
    # What is only a help is made anew in its place; what lies in there still is as it was.
    if path.lstat().st_uid == 65534:
        assert (fingerprint(path) if path.is_dir() else path.read_bytes()) == before
        assert any(isinstance(error, Denied) and name in error.message for error in refused) or name in HELPS
    else:
        assert name in HELPS


@pytest.mark.parametrize("kind", ["symlink", "dangling", "file", "fifo", "socket"])
@pytest.mark.parametrize("name", DIRECTORIES)
def test_in_place_of_a_directory(tree: Tree, session: SessionDir, outside: Path, name: str, kind: str) -> None:
    trees.completed(session)
    before = fingerprint(outside)
    plant(Path(session.directory.path, name), kind, outside, directory=True)
    refused = try_everything(tree)
    assert fingerprint(outside) == before
    for error in refused:
        assert error.exit_code != 70, error.message
    if name in ("runs", "runs/run-1", "keys"):
        assert any(isinstance(error, Denied) for error in refused)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [".new-active", "runs/run-1/.new-run.json", "runs/run-1/.new-lease.json"])
def test_in_place_of_what_is_being_made(tree: Tree, session: SessionDir, outside: Path, name: str, kind: str) -> None:
    """A left-over is discarded; what lies behind it stays as it is."""
    run_id = trees.accept(session).run_id
    if name == ".new-active":
        executed(session, run_id)
    before = fingerprint(outside)
    plant(Path(session.directory.path, name), kind, outside)
    refused = None
    try:
        run_id = trees.accept(session).run_id if name == ".new-active" else run_id
        executed(session, run_id)
    except (Denied, StorageFailed) as error:
        refused = error
    # A directory is nobody's left-over.
    assert (refused is not None) == (kind == "directory")
    assert refused or session.run(run_id).load().is_over
    assert fingerprint(outside) == before


@pytest.mark.parametrize("kind", [*KINDS, "closed"])
def test_in_place_of_the_list_of_activity(tree: Tree, session: SessionDir, outside: Path, kind: str) -> None:
    """It is a hint: nobody needs it, and nothing is refused for it. `check` names it, a repair puts it aside."""
    run_id = trees.completed(session)
    tree.create_session(session_id="s2")
    trees.completed(tree.session("s1"))
    before = fingerprint(outside)
    path = Path(tree.root, "accounts", "ann", "activity.jsonl")
    path.chmod(0o400) if kind == "closed" else plant(path, kind, outside)
    assert list(tree.recent_ids()) == ["s1", "s2"]
    trees.completed(tree.session("s2"))
    assert tree.find("@last").session_id == "s2"
    tree.create_session(session_id="s3")
    assert list(tree.recent_ids()) == ["s3", "s2", "s1"]
    assert tree.noted_since(5) == (None, 0)
    assert session.run(run_id).load().is_over
    place = Place(tree, None, {})
    Executor(tree.session("s3"), trees.accept(tree.session("s3")).run_id).die()
    looks = iter([False, False, True])
    assert [each.session_id for each in Patrol(place, pytest.fail).watch(lambda _: next(looks))] == ["s3"]

    for repair in (False, True):
        (finding,) = check_tree(tree, repair=repair)
        assert (finding.path, finding.is_repaired) == (str(path), repair)
    assert list(check_tree(tree, repair=False)) == []
    assert os.path.lexists(f"{path}.damaged-0")
    assert fingerprint(outside) == before
    tree.session("s1").activity.note("s1")
    assert path.is_file()
    assert list(tree.recent_ids()) == ["s1", "s3", "s2"]


@pytest.mark.parametrize("kind", ["file", *KINDS])
def test_anything_that_lies_there_as_the_cancel_sentinel_asks_for_a_stop_and_is_not_opened(
    session: SessionDir, outside: Path, kind: str
) -> None:
    run_id = trees.accept(session).run_id
    executor = Executor(session, run_id)
    before = fingerprint(outside)
    plant(trees.run_path(session, run_id, "cancel"), kind, outside)
    assert session.run(run_id).view().stop_asked
    with writing(session) as writer:
        run = session.run(run_id).current(writer)
    assert run.status == "cancelling"
    assert executor.wind_down().status == "cancelled"
    assert fingerprint(outside) == before
