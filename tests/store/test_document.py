"""Changing `session.json`: no window overwrites another's change, and what this version does not know survives.

# covers A11 A26 A75 B7 B10 B41 B43
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import Denied, SeqDiffers
from agentrun.store.document import change_session, keep_remote_id
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing.trees import fingerprint


def document_path(session: SessionDir) -> Path:
    return Path(session.directory.path, "session.json")


def retitle(session: SessionDir, title: str, expect_revision: int | None = None) -> None:
    with writing(session) as writer:
        change_session(writer, lambda each: each._replace(title=title), expect_revision=expect_revision)


def test_a_change_raises_the_revision_and_moves_the_time(session: SessionDir) -> None:
    before = session.read()
    retitle(session, "Another")
    after = session.read()
    assert (after.title, after.revision) == ("Another", before.revision + 1)
    assert after.created_at == before.created_at
    assert after.updated_at >= before.updated_at
    assert after._replace(title="Test", revision=1, updated_at=before.updated_at) == before


def test_a_change_to_the_same_writes_nothing(session: SessionDir, tree: Tree) -> None:
    before = fingerprint(tree.root)
    retitle(session, "Test")
    assert fingerprint(tree.root) == before


def test_a_change_of_an_older_revision_is_refused_and_writes_nothing(session: SessionDir, tree: Tree) -> None:
    retitle(session, "From the phone", expect_revision=1)
    before = fingerprint(tree.root)
    with pytest.raises(SeqDiffers, match="revision 2, not 1"):
        retitle(session, "From the computer", expect_revision=1)
    assert fingerprint(tree.root) == before
    retitle(session, "From the computer", expect_revision=2)
    assert session.read().title == "From the computer"


def test_fields_of_other_versions_survive(session: SessionDir) -> None:
    path = document_path(session)
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | {"colour": {"r": 1}}).encode())
    retitle(session, "Another")
    with writing(session) as writer:
        keep_remote_id(writer, "acp:coder", "conversation-7")
    stored = json.loads(path.read_bytes())
    assert stored["colour"] == {"r": 1}
    assert (stored["title"], stored["remoteIds"]) == ("Another", {"acp:coder": "conversation-7"})


def test_a_document_of_a_newer_format_is_not_rewritten(session: SessionDir, tree: Tree) -> None:
    path = document_path(session)
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | {"formatVersion": 2}).encode())
    before = fingerprint(tree.root)
    with pytest.raises(Denied):
        retitle(session, "Another")
    assert fingerprint(tree.root) == before


def test_a_changed_session_does_not_become_the_last_one(tree: Tree, session: SessionDir) -> None:
    # case C16: the last one is the one in which something was said last.
    tree.create_session(session_id="s2")
    retitle(session, "Another")
    assert next(tree.recent_ids()) == "s2"


def test_the_document_stays_private(session: SessionDir) -> None:
    earlier = os.umask(0)
    try:
        retitle(session, "Another")
    finally:
        os.umask(earlier)
    assert document_path(session).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_of_many_changes_at_once_none_is_lost(crew: Callable[..., Any], session: SessionDir, tree: Tree) -> None:
    setup = f"""
from agentrun.store.tree import Tree
from agentrun.store.redo import writing
from agentrun.store.document import keep_remote_id
session = Tree({tree.root!r}, "ann").session("s1")
"""
    work = """
for turn in range(20):
    with writing(session) as writer:
        keep_remote_id(writer, f"service-{argument}-{turn}", "id")
"""
    results = crew(6, work, setup).all()
    assert [result.get("ok", result) for result in results] == [None] * 6
    document = session.read()
    assert len(document.remote_ids) == 120
    assert document.revision == 121
