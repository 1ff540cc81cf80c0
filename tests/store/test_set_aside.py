"""A damaged lease or summary is put aside by a repair, and what it was goes on: neither decides anything.

Covers A58, B33, B35, promises 2, 8 and 18.
"""

import json
import os
from pathlib import Path

import pytest

from agentrun.errors import FencedOut
from agentrun.records.finding import Finding, Kind
from agentrun.records.lease import Lease
from agentrun.states import EventType, RunStatus
from agentrun.store.check import check_session
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, run_path

DAMAGES = [b"", b"\0" * 50, b'{"generation":7}']


def look(tree: Tree, *, repair: bool = False) -> list[Finding]:
    return list(check_session(tree, "s1", repair=repair))


def repaired(tree: Tree) -> list[Finding]:
    """What a repair told; nothing is wrong afterwards, and nothing more is to be done."""
    found = look(tree, repair=True)
    assert not any(finding.is_wrong for finding in found), found
    assert look(tree) == look(tree, repair=True) == []
    return found


def lease_path(session: SessionDir) -> Path:
    return run_path(session, "run-1", "lease.json")


def stored_lease(session: SessionDir) -> Lease:
    return Lease.from_doc(json.loads(lease_path(session).read_bytes()))


@pytest.mark.parametrize("data", DAMAGES)
def test_a_damaged_lease_is_made_again_as_the_log_tells_it(tree: Tree, session: SessionDir, data: bytes) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    lease_path(session).write_bytes(data)
    (finding,) = repaired(tree)
    assert (finding.kind, finding.is_repaired) == (Kind.DAMAGED, True)
    assert run_path(session, "run-1", "lease.json.damaged-0").read_bytes() == data
    told = stored_lease(session)
    assert (told.generation, told.owner) == (1, executor.lease.owner)
    # Its executor has as long to renew it as it had at first.
    assert told.expires_boot_seconds >= executor.lease.expires_boot_seconds
    assert session.run("run-1").view().executor == "alive"
    executor.ask_model()
    with writing(session) as writer:
        executor.run_dir.renew(executor.lease, writer, 60)
    executor.die()
    assert session.run("run-1").view().executor == "lost"


def test_a_lease_that_was_made_again_lets_no_fenced_executor_write(tree: Tree, session: SessionDir) -> None:
    old = Executor(session, trees.accept(session).run_id)
    old.die()
    new = Executor(session, "run-1")
    # As the old one would have it: the log alone tells whose it is.
    lease_path(session).write_bytes(json.dumps(old.lease.to_doc() | {"owner": None}).encode())
    repaired(tree)
    assert (stored_lease(session).generation, stored_lease(session).owner) == (2, new.lease.owner)
    with pytest.raises(FencedOut):
        old.append(EventType.RUN_LEASE_RELEASED, reason="x")
    new.ask_model()
    new.die()


def test_of_a_run_that_nobody_has_no_lease_is_made(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    waiting = Executor(session, trees.accept(session).run_id)
    waiting.deliver()
    waiting.ask()
    waiting.append(EventType.RUN_LEASE_RELEASED, reason="waiting")
    waiting.die()
    for run_id in ("run-1", "run-2"):
        run_path(session, run_id, "lease.json").write_bytes(b"no lease")
        run_path(session, run_id, "lease.json").chmod(0o600)
    with writing(session) as writer:
        session.run("run-2").write_snapshot(writer)
    assert len(repaired(tree)) == 2
    for run_id in ("run-1", "run-2"):
        assert not run_path(session, run_id, "lease.json").exists()
        assert run_path(session, run_id, "lease.json.damaged-0").read_bytes() == b"no lease"


def test_a_damaged_lease_still_tells_that_a_run_was_begun_when_it_lies_aside(tree: Tree, session: SessionDir) -> None:
    """Nothing else is left of the run: it must not begin a second time."""
    Executor(session, trees.accept(session).run_id).die()
    for path in run_path(session, "run-1").iterdir():
        path.unlink() if path.is_file() else path.rmdir()
    lease_path(session).write_bytes(b"no lease")
    lease_path(session).chmod(0o600)
    for _ in range(2):
        assert [each.kind for each in look(tree, repair=True) if each.is_wrong] == [Kind.MISSING]
        view = session.another().run("run-1").view()
        assert (view.status, view.executor) == (RunStatus.RECONCILING, "lost")
    assert not lease_path(session).exists()


def test_a_lease_of_a_newer_format_is_left_as_it_is(tree: Tree, session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    data = b'{"formatVersion": 99, "holders": []}'
    lease_path(session).write_bytes(data)
    assert [(each.kind, each.is_wrong) for each in look(tree, repair=True)] == [(Kind.NEWER, False)]
    assert lease_path(session).read_bytes() == data
    executor.die()


def test_a_summary_that_cannot_be_used_is_put_aside_and_kept(tree: Tree, session: SessionDir) -> None:
    trees.completed(session)
    path = Path(session.directory.path, "summary.json")
    ahead = {"sessionId": "s1", "text": "so far", "covers": {"messageSeq": 99, "runId": None, "eventSeq": None}}
    texts = ["no json", json.dumps(ahead), "no json", '{"text": 5}']
    for text in texts:
        path.write_text(text)
        path.chmod(0o600)
        (finding,) = repaired(tree)
        assert finding.kind is Kind.DAMAGED
        assert not path.exists()
    kept = {each.read_text() for each in path.parent.glob("summary.json.damaged-0*")}
    assert kept == set(texts)
    assert {os.stat(each).st_mode & 0o777 for each in path.parent.glob("summary.json.*")} == {0o600}
