"""No damage hides another: neither what cannot be opened, nor what is found only once something else is put right.

Covers promise 2.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.errors import CorruptRecord
from agentrun.records.finding import Finding, Kind
from agentrun.store.check import check_session
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import fingerprint, run_path


def look(tree: Tree, *, repair: bool = False) -> list[Finding]:
    return list(check_session(tree, "s1", repair=repair))


@pytest.fixture
def path(session: SessionDir) -> Path:
    """A session with two completed runs."""
    trees.completed(session)
    trees.completed(session)
    return Path(session.directory.path)


def _another_in_its_place(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("x")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()


IN_THE_WAY = [
    "active",
    "keys",
    "summary.json",
    "runs",
    "runs/run-1",
    "runs/run-2",
    "runs/run-2/operations.jsonl",
]


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_what_cannot_be_opened_hides_no_damage_beside_it(tree: Tree, path: Path, name: str) -> None:
    with (path / "messages.jsonl").open("ab") as log:
        log.write(b"no record\n")
    _another_in_its_place(path / name)
    before = fingerprint(path)
    found = look(tree)
    assert {finding.kind for finding in found} >= {Kind.DAMAGED, Kind.UNREADABLE}
    # Once, however many parts need it.
    assert len([finding for finding in found if finding.kind is Kind.UNREADABLE]) == 1
    assert fingerprint(path) == before


@pytest.mark.parametrize("name", ["messages.jsonl", "session.json"])
def test_what_everything_needs_hides_no_damage_of_a_run(tree: Tree, path: Path, name: str) -> None:
    _another_in_its_place(path / name)
    with (path / "runs/run-1/operations.jsonl").open("ab") as log:
        log.write(b"no record\n")
    found = look(tree)
    assert {finding.kind for finding in found} == {Kind.DAMAGED, Kind.UNREADABLE}
    assert len([finding for finding in found if finding.kind is Kind.UNREADABLE]) == 1


def test_bytes_that_are_damaged_do_not_hide_a_snapshot_that_is_not_true(
    tree: Tree, session: SessionDir, path: Path
) -> None:
    snapshot = run_path(session, "run-1", "run.json")
    doc = json.loads(snapshot.read_text())
    run_path(session, "run-1", "blobs", doc["report"]["sha256"]).write_text("other bytes")
    snapshot.write_text(json.dumps(doc | {"status": "failed"}))
    assert {finding.kind for finding in look(tree)} == {Kind.DAMAGED, Kind.SNAPSHOT}
    assert all(finding.is_repaired for finding in look(tree, repair=True))
    assert look(tree) == []


def test_what_shows_behind_repaired_damage_is_put_right_and_told(tree: Tree, session: SessionDir, path: Path) -> None:
    # Its run is made again from the prompt, and only then has a snapshot that is not true.
    trees.accept(session)
    snapshot = run_path(session, "run-3", "run.json")
    run_path(session, "run-3", "operations.jsonl").unlink()
    snapshot.write_text(json.dumps(json.loads(snapshot.read_text()) | {"reason": "forged", "appliedSeq": 0}))
    repaired = look(tree, repair=True)
    assert repaired
    assert all(finding.is_repaired for finding in repaired if finding.is_wrong)
    assert not [finding for finding in look(tree) if finding.is_wrong]


@pytest.mark.parametrize("said", ["no json", '{"text": 5}', None])
def test_a_summary_that_cannot_be_used_is_named(tree: Tree, path: Path, said: str | None) -> None:
    ahead = {"sessionId": "s1", "text": "so far", "covers": {"messageSeq": 99, "runId": None, "eventSeq": None}}
    (path / "summary.json").write_text(said or json.dumps(ahead))
    (path / "summary.json").chmod(0o600)
    (finding,) = look(tree)
    assert (finding.kind, finding.is_wrong) == (Kind.DAMAGED, True)
    # It would hide what was said from the model.
    assert "the messages themselves are used" in finding.said


def _by_a_writer(session: SessionDir) -> None:
    with writing(session):
        pass


@pytest.mark.parametrize(
    "need", [_by_a_writer, lambda session: session.run("run-1"), lambda session: session.run_ids()]
)
def test_a_session_whose_runs_are_gone_is_damaged_and_not_unknown(
    session: SessionDir, path: Path, need: Callable[[SessionDir], object]
) -> None:
    shutil.rmtree(path / "runs")
    with pytest.raises(CorruptRecord, match="runs is missing"):
        need(session)
