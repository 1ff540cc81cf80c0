"""`check` finds what is wrong and nothing else; `--repair` makes again what follows, and deletes nothing.

Each case breaks a session that has one of everything, in one way.

Covers A58, A68, promises 2, 14 and 18. case C1, case C21.
"""

import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.errors import Denied
from agentrun.records.finding import Finding, Kind
from agentrun.records.run import fold_run
from agentrun.store import inbox
from agentrun.store.check import check_session, check_tree
from agentrun.store.check.conversation import _Conversation, look_at_session
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import fingerprint, run_path
from tests.conftest import Crew


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path / "root"))


@pytest.fixture
def session(tree: Tree) -> SessionDir:
    made = tree.create_session(title="t", session_id="s")
    trees.whole_life(made)
    return made


def path_of(session: SessionDir, *names: str) -> Path:
    return Path(session.directory.path, *names)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


# --- the ways to break it


def nul_in_a_message(session: SessionDir) -> None:
    path = path_of(session, "messages.jsonl")
    lines = lines_of(path)
    lines[1] = b"\0" * (len(lines[1]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))


def nul_over_a_newline(session: SessionDir) -> None:
    path = path_of(session, "messages.jsonl")
    lines = lines_of(path)
    lines[1] = lines[1][:-20] + b"\0" * 20
    path.write_bytes(b"".join(lines))


def a_message_is_gone(session: SessionDir) -> None:
    path = path_of(session, "messages.jsonl")
    lines = lines_of(path)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))


def a_message_twice(session: SessionDir) -> None:
    path = path_of(session, "messages.jsonl")
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:2], lines[0], *lines[2:]]))


def a_foreign_event(session: SessionDir) -> None:
    path = run_path(session, "run-1", "operations.jsonl")
    lines = lines_of(path)
    lines[2] = lines[2].replace(b'"sessionId":"s"', b'"sessionId":"other"')
    path.write_bytes(b"".join(lines))


def an_event_after_the_end(session: SessionDir) -> None:
    path = run_path(session, "run-1", "operations.jsonl")
    last = json.loads(lines_of(path)[-1])
    last |= {"seq": last["seq"] + 1, "type": "run.started", "payload": {}}
    with path.open("ab") as log:
        log.write(json.dumps(last).encode() + b"\n")


def an_unknown_event(session: SessionDir) -> None:
    path = run_path(session, "run-1", "operations.jsonl")
    last = json.loads(lines_of(path)[-1])
    last |= {"seq": last["seq"] + 1, "type": "run.admired", "payload": {"by": "all"}}
    with path.open("ab") as log:
        log.write(json.dumps(last).encode() + b"\n")


def a_torn_message(session: SessionDir) -> None:
    with path_of(session, "messages.jsonl").open("ab") as log:
        log.write(b'{"seq":99,"sess')


def a_torn_event(session: SessionDir) -> None:
    with run_path(session, "run-1", "operations.jsonl").open("ab") as log:
        log.write(b'{"seq":99,"sess')


def no_snapshot(session: SessionDir) -> None:
    run_path(session, "run-1", "run.json").unlink()


def another_snapshot(session: SessionDir) -> None:
    path = run_path(session, "run-1", "run.json")
    path.write_text(path.read_text().replace('"completed"', '"failed"'))


def a_snapshot_ahead(session: SessionDir) -> None:
    path = run_path(session, "run-1", "run.json")
    doc = json.loads(path.read_text())
    path.write_text(json.dumps(doc | {"appliedSeq": 99}))


def no_report(session: SessionDir) -> None:
    run_path(session, "run-1", "report.md").unlink()


def another_report(session: SessionDir) -> None:
    run_path(session, "run-1", "report.md").write_text("All is lost.\n")


def a_report_of_a_cancelled_run(session: SessionDir) -> None:
    run_path(session, "run-2", "report.md").write_text("Done!\n")


def no_bytes_of_the_report(session: SessionDir) -> None:
    shutil.rmtree(run_path(session, "run-1", "blobs"))
    run_path(session, "run-1", "report.md").unlink()


def other_bytes_of_the_report(session: SessionDir) -> None:
    (blob,) = run_path(session, "run-1", "blobs").iterdir()
    blob.write_bytes(b"All is lost.\n")


def no_closing_message(session: SessionDir) -> None:
    path = path_of(session, "messages.jsonl")
    path.write_bytes(b"".join(lines_of(path)[:-1]))


def no_keys(session: SessionDir) -> None:
    shutil.rmtree(path_of(session, "keys"))


def a_slot_of_an_ended_run(session: SessionDir) -> None:
    path_of(session, "active").write_text("run-1\n")


def a_slot_of_no_run(session: SessionDir) -> None:
    path_of(session, "active").write_text("run-77\n")


def no_slot(session: SessionDir) -> None:
    trees.accept(session)
    path_of(session, "active").unlink()


def no_run(session: SessionDir) -> None:
    shutil.rmtree(run_path(session, "run-1"))


def no_newest_run(session: SessionDir) -> None:
    trees.accept(session)
    shutil.rmtree(run_path(session, "run-4"))


def an_end_that_is_not_published(session: SessionDir) -> None:
    """As a crash leaves it right behind `run.finished`."""
    run_id = trees.completed(session)
    *before, _ = session.run(run_id).all_events()
    run_path(session, run_id, "run.json").write_text(json.dumps(fold_run(before).to_doc()))
    run_path(session, run_id, "report.md").unlink()
    path = path_of(session, "messages.jsonl")
    path.write_bytes(b"".join(lines_of(path)[:-1]))
    path_of(session, "active").write_text(f"{run_id}\n")


def no_snapshot_yet(session: SessionDir) -> None:
    trees.accept(session)
    run_path(session, "run-4", "run.json").unlink()


def half_a_snapshot(session: SessionDir) -> None:
    trees.accept(session)
    run_path(session, "run-4", "run.json").write_bytes(b"")


def no_messages(session: SessionDir) -> None:
    path_of(session, "messages.jsonl").unlink()


def no_document(session: SessionDir) -> None:
    path_of(session, "session.json").unlink()


def a_newer_document(session: SessionDir) -> None:
    path = path_of(session, "session.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"formatVersion": 99}))


def a_link_for_a_run(session: SessionDir) -> None:
    run_path(session, "run-1").rename(path_of(session, "elsewhere"))
    run_path(session, "run-1").symlink_to(path_of(session, "elsewhere"))


def a_fifo_for_a_log(session: SessionDir) -> None:
    path = run_path(session, "run-1", "operations.jsonl")
    path.unlink()
    os.mkfifo(path)


def a_strange_file(session: SessionDir) -> None:
    path_of(session, "notes.txt").write_text("mine")


def an_unfinished_file(session: SessionDir) -> None:
    path_of(session, ".new-session.json").write_text("{")


class Case(NamedTuple):
    """What is broken, what must be found, and what of it is left after a repair (None: nothing)."""

    broken: Callable[[SessionDir], None]
    found: set[Kind]
    left: set[Kind] | None = None
    wrong_after: bool = False


K = Kind
CASES = [
    Case(nul_in_a_message, {K.DAMAGED}, {K.SET_ASIDE}),
    Case(nul_over_a_newline, {K.DAMAGED}, {K.SET_ASIDE}),
    Case(a_message_is_gone, {K.GAP}, {K.GAP}, True),
    Case(a_message_twice, {K.DUPLICATE}, {K.DUPLICATE}, True),
    Case(a_foreign_event, {K.DAMAGED}, {K.SET_ASIDE}),
    Case(an_event_after_the_end, {K.IMPOSSIBLE}, {K.IMPOSSIBLE}, True),
    Case(an_unknown_event, set()),
    Case(a_torn_message, {K.TORN}),
    Case(a_torn_event, {K.TORN}),
    Case(no_snapshot, {K.SNAPSHOT}),
    Case(another_snapshot, {K.SNAPSHOT}),
    Case(a_snapshot_ahead, {K.MISSING}, {K.MISSING}, True),
    Case(no_report, {K.PUBLICATION}),
    Case(another_report, {K.PUBLICATION}),
    Case(a_report_of_a_cancelled_run, {K.IMPOSSIBLE}, {K.IMPOSSIBLE}, True),
    Case(no_bytes_of_the_report, {K.MISSING, K.PUBLICATION}, {K.MISSING, K.PUBLICATION}, True),
    Case(other_bytes_of_the_report, {K.DAMAGED}),
    Case(no_closing_message, {K.PUBLICATION}),
    Case(no_keys, {K.KEY}),
    Case(a_slot_of_an_ended_run, {K.SLOT}),
    Case(a_slot_of_no_run, {K.SLOT}),
    Case(no_slot, {K.SLOT}),
    Case(no_run, {K.MISSING}, {K.MISSING}, True),
    Case(no_newest_run, {K.RUN, K.SLOT}),
    Case(no_snapshot_yet, {K.RUN}),
    Case(an_end_that_is_not_published, {K.RUN, K.SLOT}),
    Case(half_a_snapshot, {K.RUN}),
    Case(no_messages, {K.MISSING}, {K.MISSING}, True),
    Case(no_document, {K.UNREADABLE}),
    Case(a_newer_document, {K.NEWER}, {K.NEWER}),
    Case(a_link_for_a_run, {K.UNREADABLE, K.ORPHAN}, {K.UNREADABLE, K.ORPHAN}, True),
    Case(a_fifo_for_a_log, {K.UNREADABLE}, {K.UNREADABLE}, True),
    Case(a_strange_file, {K.ORPHAN}, {K.ORPHAN}),
    Case(an_unfinished_file, {K.LEFTOVER}, {K.LEFTOVER}),
]


def look(tree: Tree, *, repair: bool = False) -> list[Finding]:
    return list(check_session(tree, "s", repair=repair))


def test_a_session_with_one_of_everything_is_clean(tree: Tree, session: SessionDir) -> None:
    before = fingerprint(session.directory.path)
    assert look(tree) == []
    assert look(tree, repair=True) == []
    assert fingerprint(session.directory.path) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.broken.__name__)
def test_each_kind_of_damage_is_found_and_looking_changes_nothing(tree: Tree, session: SessionDir, case: Case) -> None:
    case.broken(session)
    before = fingerprint(session.directory.path)
    found = look(tree)
    assert {finding.kind for finding in found} == case.found
    assert all(finding.session_id == "s" and not finding.is_repaired for finding in found)
    assert all(finding.path.startswith(session.directory.path) for finding in found)
    assert fingerprint(session.directory.path) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.broken.__name__)
def test_a_repair_makes_what_follows_again_and_deletes_nothing(tree: Tree, session: SessionDir, case: Case) -> None:
    case.broken(session)
    before = fingerprint(session.directory.path)
    repaired = look(tree, repair=True)
    assert {finding.kind for finding in repaired} == case.found
    left = look(tree)
    assert {finding.kind for finding in left} == (case.left or set())
    assert any(finding.is_wrong for finding in left) is case.wrong_after
    # What was wrong and is no more says so; what still is does not.
    assert any(finding.is_wrong for finding in repaired) is case.wrong_after
    after = fingerprint(session.directory.path)
    # A slot that names nothing useful is freed, and a torn tail is cut once it is kept.
    gone = before.keys() - after.keys() - {"active", ".new-session.json"}
    assert gone == set()


def test_the_bytes_of_a_damaged_record_are_kept_and_its_place_stays(tree: Tree, session: SessionDir) -> None:
    nul_in_a_message(session)
    path = path_of(session, "messages.jsonl")
    before = path.read_bytes()
    (finding,) = look(tree, repair=True)
    assert finding.is_repaired
    assert path.read_bytes() == before
    kept = path_of(session, f"messages.jsonl.damaged-{finding.offset}").read_bytes()
    assert kept == before[finding.offset :][: finding.length]
    assert set(kept) == {0}
    # Damage that comes later, in the same place, is not taken for the one that is known.
    path.write_bytes(before.replace(b"\0", b"\1"))
    assert [each.kind for each in look(tree)] == [K.DAMAGED]


def test_a_report_that_somebody_changed_is_kept_beside_the_delivered_one(tree: Tree, session: SessionDir) -> None:
    another_report(session)
    look(tree, repair=True)
    assert run_path(session, "run-1", "report.md").read_text() == "All is well.\n"
    assert run_path(session, "run-1", "report.md.damaged-0").read_text() == "All is lost.\n"


def test_what_was_kept_once_is_never_replaced(tree: Tree, session: SessionDir) -> None:
    """Promise 18: each repair keeps what it finds, and the same bytes once."""
    messages, report = path_of(session, "messages.jsonl"), run_path(session, "run-1", "report.md")
    (blob,) = run_path(session, "run-1", "blobs").iterdir()
    whole = messages.read_bytes()
    texts = ["first", "another", "third", "another"]
    for text in texts:
        report.write_text(text)
        messages.write_bytes(text.encode().ljust(whole.index(b"\n"), b"\0") + whole[whole.index(b"\n") :])
        look(tree, repair=True)
        blob.write_text(text)
        look(tree, repair=True)
        assert {each.kind for each in look(tree)} == {K.SET_ASIDE}
    for path in (messages, report, blob):
        kept = sorted(path.parent.glob(f"{path.name}.damaged-0*"))
        assert [each.name.removeprefix(path.name) for each in kept] == [
            ".damaged-0", ".damaged-0-again", ".damaged-0-again-2",
        ]  # fmt: skip
        assert [each.read_text().rstrip("\0") for each in kept] == texts[:3]


def test_a_repaired_snapshot_has_the_bytes_that_it_had(tree: Tree, session: SessionDir) -> None:
    path = run_path(session, "run-2", "run.json")
    before = path.read_bytes()
    path.unlink()
    look(tree, repair=True)
    assert path.read_bytes() == before


def test_a_repaired_snapshot_keeps_what_other_versions_wrote_and_a_copy_stays(tree: Tree, session: SessionDir) -> None:
    path = run_path(session, "run-1", "run.json")
    doc = json.loads(path.read_text()) | {"zzFuture": [1, {"a": None}]}
    path.write_text(json.dumps(doc | {"status": "failed"}))
    wrong = path.read_bytes()
    look(tree, repair=True)
    assert json.loads(path.read_text()) == doc
    assert run_path(session, "run-1", "run.json.damaged-0").read_bytes() == wrong
    # One that is only older was true: nothing is kept of it.
    trees.accept(session)
    path = run_path(session, "run-4", "run.json")
    older = path.read_bytes()
    trees.cancel(session, "run-4")
    newer = path.read_bytes()
    path.write_bytes(older)
    assert [each.kind for each in look(tree, repair=True)] == [K.RUN], "as the next writer would"
    assert path.read_bytes() == newer
    assert list(path.parent.glob("*.damaged-*")) == []


def test_a_key_whose_hint_was_lost_is_known_again(tree: Tree, session: SessionDir) -> None:
    no_keys(session)
    look(tree, repair=True)
    with writing(session) as writer:
        again = inbox.already_accepted(writer, trees.said("again", "k1"))
    assert again is not None
    assert again.run_id == "run-2"


def test_many_damaged_lines_are_counted_and_not_listed(tree: Tree, session: SessionDir) -> None:
    with path_of(session, "messages.jsonl").open("ab") as log:
        log.write(b"no record\n" * 100_000)
    found = look(tree)
    assert len(found) == 101
    assert found[-1].said == "99900 more damaged lines"


def test_what_lies_among_the_sessions_is_named_and_hides_none(tree: Tree, session: SessionDir) -> None:
    sessions = path_of(session).parent
    (sessions / ".new-session-x").mkdir()
    (sessions / "lost+found~").mkdir()
    found = list(check_tree(tree, repair=False))
    assert [(Path(each.path).name, each.kind) for each in found] == [
        (".new-session-x", K.LEFTOVER),
        ("lost+found~", K.ORPHAN),
    ]


def test_a_session_that_cannot_be_opened_is_a_finding(tree: Tree, session: SessionDir) -> None:
    sessions = path_of(session).parent
    (sessions / "planted").symlink_to("s")
    (finding,) = check_session(tree, "planted", repair=True)
    assert finding.kind is K.UNREADABLE
    assert finding.is_wrong


def keys_as_a_link(session: SessionDir) -> None:
    path = path_of(session, "keys")
    path.rename(path.parent.parent / "elsewhere-keys")
    path.symlink_to(path.parent.parent / "elsewhere-keys")


def a_summary_that_is_a_directory(session: SessionDir) -> None:
    path_of(session, "summary.json").mkdir()


def nobody_s_attachments(session: SessionDir) -> None:
    os.mkfifo(path_of(session, "attachments"))


@pytest.mark.parametrize("break_it", [keys_as_a_link, a_summary_that_is_a_directory, nobody_s_attachments])
def test_what_lies_in_the_place_of_a_hint_is_named(
    break_it: Callable[[SessionDir], None], tree: Tree, session: SessionDir
) -> None:
    break_it(session)
    # And nothing else is: what a run lacks would be told as well.
    run_path(session, "run-1", "run.json").unlink()
    found = look(tree)
    assert {each.kind for each in found} == {K.UNREADABLE, K.SNAPSHOT}
    named = next(Path(each.path).name for each in found if each.kind is K.UNREADABLE)
    assert named in ("keys", "summary.json", "attachments")


def test_damage_is_told_of_a_session_that_stays_locked(
    tree: Tree, session: SessionDir, crew: Callable[..., Crew]
) -> None:
    run_path(session, "run-1", "run.json").unlink()
    work = "fcntl.flock(os.open(argument, os.O_RDONLY), fcntl.LOCK_EX)"
    crew(1, work, setup="import fcntl, os").all(session.directory.path)
    impatient = tree.session("s")
    impatient.patient_until = time.monotonic()
    found = list(look_at_session(impatient))
    assert {each.kind for each in found} == {K.UNREADABLE, K.SNAPSHOT}
    assert "stays locked" in next(each.said for each in found if each.kind is K.UNREADABLE)


def test_a_format_version_that_is_text_is_called_what_it_is(tree: Tree, session: SessionDir) -> None:
    path = path_of(session, "session.json")
    path.write_text(path.read_text().replace('"formatVersion": 1', '"formatVersion": "1"'))
    assert any("no whole number" in each.said for each in look(tree))
    with pytest.raises(Denied, match="no whole number"):
        tree.session("s").check_writable()


def test_of_what_began_runs_only_the_newest_is_kept(session: SessionDir) -> None:
    """A session may have ten thousand runs. # covers promise 16"""
    prompt = next(message for message in session.messages_since(1) if message.begins_run)
    conversation = _Conversation(session)
    tracemalloc.start()
    try:
        for number in range(1, 2_001):
            behind = [f"run-{number - 1}"] if number > 1 else []
            accepted = {"behind": behind, "agent": "a" * 1_000 + str(number)}
            conversation.keep(prompt._replace(seq=number, run_id=f"run-{number}", accept=accepted, text="x" * 1_000))
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
    assert len(conversation.begun) == 2_000
    assert conversation.newest_queue == ["run-1999", "run-2000"]
