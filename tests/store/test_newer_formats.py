"""What a newer version has written is read as far as it can be, and written over by nobody.

Covers A12, A20, promise 18, and what the format says about its version and about unknown fields.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import NewerFormat
from agentrun.records.finding import Finding, Kind
from agentrun.store import summaries
from agentrun.store.check import check_session
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint, run_path

SUMMARY = {
    "formatVersion": 1, "sessionId": "s1", "text": "They have talked about it.",
    "covers": {"messageSeq": 1, "runId": None, "eventSeq": None}, "by": {"runId": "run-1", "operationId": "op-1"},
    "at": "2026-01-02T03:04:05.678Z",
}  # fmt: skip


def look(tree: Tree, *, repair: bool = False) -> list[Finding]:
    return list(check_session(tree, "s1", repair=repair))


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def path(session: SessionDir) -> Path:
    """A session with two completed runs and a summary."""
    trees.completed(session)
    trees.completed(session)
    path = Path(session.directory.path)
    (path / "summary.json").write_text(json.dumps(SUMMARY))
    (path / "summary.json").chmod(0o600)
    return path


def _as_it_is(path: Path) -> None:
    change(path, formatVersion=2, future=1)


def _in_another_shape(path: Path) -> None:
    path.write_text('{"formatVersion": 2, "what": {"it": "is"}}')


def _in_a_version_that_is_none(path: Path) -> None:
    change(path, formatVersion="2.0")


DOCUMENTS = ["session.json", "summary.json", "runs/run-1/run.json", "runs/run-2/run.json"]


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("alter", [_as_it_is, _in_another_shape, _in_a_version_that_is_none])
def test_a_newer_document_is_told_of_and_stays_as_it_is(
    tree: Tree, path: Path, name: str, alter: Callable[[Path], None]
) -> None:
    if name.endswith("run.json"):
        change(path / name, status="failed")  # no events lead there: of this version it would be put right
    alter(path / name)
    before = fingerprint(path)
    for repair in (False, True):
        (finding,) = look(tree, repair=repair)
        assert (finding.kind, finding.path, finding.is_wrong) == (Kind.NEWER, str(path / name), False)
        assert f"{name} has format" in finding.said
    assert fingerprint(path) == before
    # Of a run that is over and not the newest, nothing is written anyway.
    if name != "runs/run-1/run.json":
        with pytest.raises(NewerFormat, match="has format") as refused, writing(tree.session("s1")):
            pass
        assert "install a newer agentrun" in str(refused.value.hint)
    assert fingerprint(path) == before


def test_what_is_damaged_beside_a_newer_document_is_found(tree: Tree, path: Path) -> None:
    change(path / "session.json", formatVersion=2, title=["a"])
    with (path / "messages.jsonl").open("ab") as log:
        log.write(b"no record\n")
    # Which fields a newer document has to have, nobody knows here.
    assert {finding.kind for finding in look(tree)} == {Kind.NEWER, Kind.DAMAGED}
    assert tree.session("s1").read().title == ""


# covers A13
def test_a_new_summary_keeps_what_other_versions_wrote_into_the_former_one(session: SessionDir, path: Path) -> None:
    change(path / "summary.json", zzFuture=[1, {"a": None}])
    trees.accept(session)
    executor = Executor(session, "run-3")
    known = summaries.read_summary(session)
    assert known is not None
    with writing(session) as writer:
        fresh = known._replace(text="More of it.", extra={})
        summaries.write_summary(writer, executor.lease, executor.run_dir, fresh)
    assert json.loads((path / "summary.json").read_text()) == SUMMARY | {
        "text": "More of it.",
        "zzFuture": [1, {"a": None}],
    }
    executor.die()


def test_a_newer_summary_is_written_over_by_no_run_that_goes_on(session: SessionDir, path: Path) -> None:
    trees.accept(session)
    executor = Executor(session, "run-3")
    known = summaries.read_summary(session)
    assert known is not None
    _as_it_is(path / "summary.json")
    before = (path / "summary.json").read_bytes()
    with recording(session) as writer, pytest.raises(NewerFormat):
        summaries.write_summary(writer, executor.lease, executor.run_dir, known)
    assert (path / "summary.json").read_bytes() == before
    executor.die()


def test_what_other_versions_count_in_a_snapshot_is_no_damage_and_stays(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    executor = Executor(session, "run-1")
    executor.start_tool()
    with writing(session) as writer:
        executor.run_dir.write_snapshot(writer)
    path = run_path(session, "run-1", "run.json")
    doc = json.loads(path.read_text())
    doc["usage"]["zzFuture"] = 7
    doc["openOperations"][0]["zzFuture"] = {"a": 1}
    path.write_text(json.dumps(doc))
    assert look(tree) == []
    # Put right, and written by everybody else.
    path.write_text(json.dumps(doc | {"reason": "forged"}))
    assert [finding.kind for finding in look(tree, repair=True)] == [Kind.SNAPSHOT]
    assert json.loads(path.read_text()) == doc
    trees.cancel(session, "run-1")
    written = json.loads(path.read_text())
    assert (written["usage"]["zzFuture"], written["openOperations"][0]["zzFuture"]) == (7, {"a": 1})
    executor.die()
