"""A run on disk: the lease fences, every view is what the events tell, and an end is published whole.

Covers A23, A38, A40, A45-A53, A58, A59, A62, B33-B37, B42, B45, B46, B61, promises 5, 7, 8 and 12.
"""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun import clock
from agentrun.errors import FencedOut, TransitionRefused
from agentrun.records.event import Event
from agentrun.states import EventType, RunStatus
from agentrun.store.locks import take_liveness
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint, run_path

E = EventType


def taken_over(session: SessionDir) -> tuple[Executor, Executor]:
    """An executor that has lost its run, and the one that has it now."""
    old = Executor(session, trees.accept(session).run_id)
    old.deliver()
    old.ask_model()
    old.die()
    rival = session.another()
    return old, Executor(rival, "run-1")


WRITES: dict[str, Callable[[Executor], object]] = {
    "append": lambda old: old.append(E.MODEL_REQUEST_STARTED, operationId="op-9", model="m", attempt=1),
    "end": lambda old: old.complete(),
    "fail": lambda old: old.append(E.RUN_FAILING, reason="x"),
    "ask": lambda old: old.ask(),
    "draft": lambda old: old.write_draft("half a report"),
    "blob": lambda old: old.keep(b"bytes"),
    "renew": lambda old: _renew(old),
    "wind down": lambda old: old.wind_down(),
    "check": lambda old: _check(old),
}


def _renew(executor: Executor) -> object:
    with recording(executor.session) as writer:
        return executor.run_dir.renew(executor.lease, writer, 15)


def _check(executor: Executor) -> object:
    with recording(executor.session) as writer:
        return executor.run_dir.check(executor.lease, writer)


# Taking up a sentinel is what any writer does first, whoever holds the lease; so does one that comes to wind down.
WITH_SENTINEL = [(write, there) for write in WRITES for there in (False, True) if (write, there) != ("wind down", True)]


@pytest.mark.parametrize(("write", "sentinel"), WITH_SENTINEL)
@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
def test_a_fenced_executor_writes_no_byte_into_the_run(
    session: SessionDir, write: str, sentinel: bool, torn: bool
) -> None:
    """Promise 8."""
    old, new = taken_over(session)
    if sentinel:
        run_path(session, "run-1", "cancel").touch()
    if torn:
        # The new executor looks while somebody's unfinished line stands there, and the old one after it.
        with run_path(session, "run-1", "operations.jsonl").open("ab") as file:
            file.write(b'{"sessionId":"s1","runId":"run-1","seq"')
        new.append(E.RUN_LEASE_RELEASED, reason="x")
    before = fingerprint(session.directory.path)
    with pytest.raises(FencedOut, match=r"generation 2, this process holds 1") as caught:
        WRITES[write](old)
    assert fingerprint(session.directory.path) == before
    assert caught.value.exit_code == 12
    assert caught.value.run_id == "run-1"


def test_a_fenced_executor_leaves_what_it_knows_outside_the_run(session: SessionDir) -> None:
    """B36."""
    old, _ = taken_over(session)
    before = fingerprint(run_path(session, "run-1"))
    old.run_dir.keep_stale(old.lease, {"type": "tool.finished", "payload": {"operationId": "op-2"}})
    old.run_dir.keep_stale(old.lease, {"type": "tool.finished", "payload": {"operationId": "op-3"}})
    assert fingerprint(run_path(session, "run-1")) == before
    path = Path(session.directory.path, "stale", "run-1.generation-1.jsonl")
    assert [json.loads(line)["payload"]["operationId"] for line in path.read_text().splitlines()] == ["op-2", "op-3"]


def test_a_lock_that_is_free_says_nothing_until_who_took_over_without_it_has_got_it(session: SessionDir) -> None:
    """The old one has let go, and the new one is about to take it: that is nobody's death."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.die()
    reader = session.another()
    fenced = {"user": "ann", "host": "tea", "pid": 1}
    with recording(session) as writer:
        lease = executor.run_dir.take_over(writer, lease_seconds=600, fenced=fenced)
        assert reader.run("run-1").view().executor == "alive"
        executor.run_dir.renew(lease, writer, 600, locked=True)
    assert reader.run("run-1").view().executor == "lost"


def test_what_others_append_behind_a_torn_line_is_seen_by_who_looked_at_it_before(session: SessionDir) -> None:
    """A handle that counted the torn bytes would read the next record from its middle and miss it: here, a takeover."""
    old = Executor(session, trees.accept(session).run_id)
    with run_path(session, "run-1", "operations.jsonl").open("ab") as file:
        file.write(b'{"sessionId":"s1","runId":"run-1","seq"')
    _check(old)
    old.die()
    Executor(session.another(), "run-1").append(E.RUN_LEASE_RELEASED, reason="x")
    with pytest.raises(FencedOut):
        _check(old)
    assert old.run_dir.events.damage == []


def test_each_claim_is_the_next_generation_and_is_counted_before_anything_is_done(session: SessionDir) -> None:
    """B35, promise 7."""
    run_dir = trees.accept(session)
    assert run_dir.load().generation == 0
    for number in range(1, 4):
        executor = Executor(session, "run-1")
        run = session.run("run-1").load()
        assert (run.generation, run.attempts) == (number, number)
        assert executor.lease.generation == number
        lease = session.run("run-1").lease()
        assert lease is not None
        assert lease == executor.lease._replace(expires_boot_seconds=lease.expires_boot_seconds)
        assert lease.owner.pid == os.getpid()
        event = next(e for e in session.run("run-1").events.backward(session.run("run-1").event) if "lease" in e.type)
        assert (event.payload["previousGeneration"], event.payload["attempt"]) == (number - 1, number)
        executor.die()


@pytest.mark.slow
def test_of_two_that_claim_one_run_the_lock_lets_one(session: SessionDir) -> None:
    run_dir = trees.accept(session)
    executor = Executor(session, "run-1")
    assert take_liveness(run_dir.directory) is None
    executor.die()


def test_a_run_that_is_over_cannot_be_claimed_again(session: SessionDir) -> None:
    """A68."""
    trees.completed(session)
    log = run_path(session, "run-1", "operations.jsonl")
    before = log.read_bytes()
    with pytest.raises(TransitionRefused):
        Executor(session, "run-1")
    assert log.read_bytes() == before


def test_an_event_that_the_table_refuses_is_not_written(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    before = fingerprint(session.directory.path)
    for kind, payload in (
        (E.RUN_FINISHED, {"terminalStatus": "cancelled"}),
        (E.RUN_FINISHED, {"terminalStatus": "sideways"}),
        (E.RUN_COMPACTED, {}),
        (E.RUN_INPUT_RECEIVED, {}),
        (E.RUN_ACCEPTED, {}),
        (E.RUN_STARTED, {}),
    ):
        with pytest.raises(TransitionRefused):
            executor.append(kind, **payload)
    assert fingerprint(session.directory.path) == before
    executor.die()


def test_every_status_on_the_way_and_who_executes_are_shown_as_they_are(session: SessionDir) -> None:
    """A31, A58, promise 7."""
    run_dir = trees.accept(session)

    def shown() -> tuple[str, str]:
        view = session.another().run("run-1").view()
        return view.status.value, view.executor

    assert shown() == ("queued", "none")
    executor = Executor(session, "run-1")
    assert shown() == ("running", "alive")
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    assert shown() == ("running", "alive")
    executor.die()
    assert shown() == ("reconciling", "lost")
    assert run_dir.load().status is RunStatus.RUNNING
    executor = Executor(session, "run-1")
    executor.append(E.TOOL_FINISHED, operationId="op-2", status="succeeded", attempt=1)
    executor.ask()
    assert shown() == ("waiting_input", "alive")
    executor.die()
    assert shown() == ("waiting_input", "none")
    trees.answer(session, "run-1", "week 12")
    assert shown() == ("reconciling", "lost")
    executor = Executor(session, "run-1")
    trees.cancel(session, "run-1")
    assert shown() == ("cancelling", "alive")
    executor.die()
    assert shown() == ("cancelling", "lost")
    Executor(session, "run-1").wind_down()
    assert shown() == ("cancelled", "none")


def test_a_run_that_waits_with_a_tool_under_way_is_lost_with_its_executor(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    executor.ask()
    executor.die()
    view = session.run("run-1").view()
    assert (view.status, view.executor) == (RunStatus.RECONCILING, "lost")


def test_an_executor_that_holds_its_lock_past_its_lease_is_frozen(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    lease = executor.lease._replace(expires_boot_seconds=clock.boot_seconds() - 1)
    path = run_path(session, "run-1", "lease.json")
    path.write_text(json.dumps(lease.to_doc()))
    assert session.run("run-1").view().executor == "frozen"
    _renew(executor)
    assert session.run("run-1").view().executor == "alive"
    executor.die()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\0" * 50, b'{"generation":1}', b"[1]", b'{"generation":"1","owner":{}}']
)
def test_a_lease_file_that_cannot_be_read_is_none_and_the_log_still_fences(session: SessionDir, data: bytes) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    run_path(session, "run-1", "lease.json").write_bytes(data)
    assert session.run("run-1").lease() is None
    assert session.run("run-1").view().executor == "alive"
    executor.ask_model()
    executor.die()
    assert Executor(session, "run-1").lease.generation == 2


def test_the_generation_in_the_log_is_the_fence_and_not_the_one_in_the_lease_file(session: SessionDir) -> None:
    old, new = taken_over(session)
    run_path(session, "run-1", "lease.json").write_text(json.dumps(old.lease.to_doc()))
    with pytest.raises(FencedOut):
        _check(old)
    new.append(E.RUN_LEASE_RELEASED, reason="x")


def test_completing_publishes_all_and_frees_the_slot(session: SessionDir) -> None:
    """# covers A6 A30 A38 A57 B25"""
    executor = Executor(session, trees.accept(session).run_id)
    executor.write_draft("half")
    executor.deliver()
    executor.ask_model()
    assert session.run("run-1").report() is None
    run = executor.complete("The whole report.\n")
    assert run.status is RunStatus.COMPLETED
    assert run_path(session, "run-1", "report.md").read_text() == "The whole report.\n"
    assert run_path(session, "run-1", "report.draft.md").read_text() == "half"
    assert session.active() is None
    assert not run_path(session, "run-1", "lease.json").exists()
    snapshot = json.loads(run_path(session, "run-1", "run.json").read_text())
    assert snapshot["status"] == snapshot["terminalStatus"] == "completed"
    assert snapshot["terminalAt"]
    assert snapshot["report"]["bytes"] == len("The whole report.\n")
    closing = session.tail(1)[0]
    assert (closing.role, closing.mode, closing.text) == ("assistant", "report", "The whole report.\n")


def test_inputs_that_nobody_was_given_are_returned_by_name(session: SessionDir) -> None:
    """Promise 10."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    trees.add(session, "run-1", "steer", "too late")
    trees.add(session, "run-1", "follow-up", "me too")
    trees.cancel(session, "run-1")
    run = executor.wind_down()
    assert run.returned_inputs == (2, 3)
    assert "not delivered: message 2, 3" in session.tail(1)[0].text


def test_a_late_result_changes_its_operation_and_nothing_else(session: SessionDir) -> None:
    """A50."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.start_tool()
    trees.cancel(session, "run-1")
    ended = executor.wind_down()
    assert [each.operation_id for each in ended.unresolved_operations] == ["op-2"]
    with writing(session) as writer:
        payload = {"operationId": "op-2", "status": "succeeded", "evidence": "late", "result": "rows"}
        run = session.run("run-1").append_as_anyone(writer, E.OPERATION_LATE_RESULT, payload)
    assert run.status is RunStatus.CANCELLED
    assert run.unresolved_operations == ()
    same = run._replace(unresolved_operations=ended.unresolved_operations, updated_at=ended.updated_at)
    assert same._replace(applied_seq=ended.applied_seq) == ended


def test_what_a_handle_wrote_itself_is_not_read_again_and_what_others_did_to_the_log_is(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.ask_model()
    assert executor.run_dir.load() is executor.run_dir.seen

    others = session.another()
    with recording(others) as writer:
        payload = {"operationId": "op-1", "actor": trees.ACTOR}
        others.run("run-1").append_as_anyone(writer, E.OPERATION_CANCEL_REQUESTED, payload)
    assert executor.run_dir.load() == session.another().run("run-1").load() != executor.run_dir.seen

    log = run_path(session, "run-1", "operations.jsonl")
    for left in range(3, 0, -1):
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[: left + 1]))
        assert executor.run_dir.load() == session.another().run("run-1").load()
    executor.die()


def test_a_stop_that_others_ask_for_is_news_and_is_seen_once(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    heard: list[Event] = []
    executor.run_dir.on_event = heard.append
    assert not executor.run_dir.has_news()
    trees.cancel(session.another(), "run-1")
    assert executor.run_dir.has_news()
    _check(executor)
    assert [event.type for event in heard] == ["run.cancel_requested"]
    assert not executor.run_dir.has_news()
    _check(executor)
    assert len(heard) == 1
    executor.die()


def test_a_sentinel_that_is_touched_within_a_hold_counts_from_the_next_one(session: SessionDir) -> None:
    # covers A48 A53: what was decided in a hold is written in it, and the stop is neither lost nor half taken up
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    run_dir, lease = executor.run_dir, executor.lease
    with recording(session) as writer:
        assert run_dir.check(lease, writer).ending is None
        run_path(session, "run-1", "cancel").touch()
        payload = {"operationId": "op-1", "turnId": "turn-1", "model": "m", "attempt": 1}
        assert run_dir.append(lease, writer, E.MODEL_REQUEST_STARTED, payload).status is RunStatus.RUNNING
    assert run_dir.has_news()
    with recording(session) as writer:
        assert run_dir.check(lease, writer).status is RunStatus.CANCELLING


def test_a_touched_sentinel_is_an_intent_once_with_the_file_s_owner_as_actor(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    run_path(session, "run-1", "cancel").touch()
    assert executor.run_dir.has_news()
    for _ in range(3):
        _check(executor)
    events = [event for event in session.run("run-1").all_events() if event.type == E.RUN_CANCEL_REQUESTED]
    assert len(events) == 1
    assert events[0].payload["via"] == "sentinel"
    assert events[0].payload["actor"]["user"]
    assert not executor.run_dir.has_news()
    executor.die()


def test_a_blob_is_kept_once_under_its_hash_and_given_back_only_if_it_is_whole(tree: Tree, session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    data = bytes(range(256)) * 10_000
    kept = executor.keep(data)
    assert kept["bytes"] == len(data)
    before = fingerprint(tree.root)
    assert executor.keep(data) == kept
    assert fingerprint(tree.root) == before
    assert session.run("run-1").blob(kept["sha256"]) == data
    run_path(session, "run-1", "blobs", kept["sha256"]).write_bytes(data[:-1])
    assert session.run("run-1").blob(kept["sha256"]) is None
    for hostile in ("", "..", "../run.json", "/etc/passwd", "0" * 64, kept["sha256"].upper(), kept["sha256"] + "\n"):
        assert session.run("run-1").blob(hostile) is None
    executor.die()


def test_the_rest_of_a_stream_is_what_is_kept(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    source = io.BytesIO(b"read already, and the rest")
    source.seek(len(b"read already, "))
    with recording(session) as writer:
        kept = executor.run_dir.write_blob(executor.lease, writer, source)
    assert session.run("run-1").blob(kept["sha256"]) == b"and the rest"
    executor.die()


def test_a_deadline_of_the_run_counts_executing_time_only(session: SessionDir) -> None:
    """B24, B45."""
    executor = Executor(session, trees.accept(session).run_id)
    first = session.run("run-1").load()
    assert first.timeout_at is not None
    assert first.started_at is not None
    assert clock.seconds_of(first.timeout_at) - clock.seconds_of(first.started_at) == pytest.approx(60, abs=1)
    executor.deliver()
    executor.ask_model()
    executor.append(E.RUN_WAITING_INPUT, questionId="q", kind="question", text="?", executingMs=50_000)
    waiting = session.run("run-1").load()
    assert waiting.timeout_at is None
    assert waiting.usage["executingMs"] == 50_000
    executor.die()
    assert not session.run("run-1").view().overdue


def test_a_newer_format_of_a_snapshot_is_not_written_over(session: SessionDir) -> None:
    trees.accept(session)
    path = run_path(session, "run-1", "run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"formatVersion": 2}))
    before = path.read_bytes()
    with pytest.raises(Exception, match="format 2"):
        trees.cancel(session.another(), "run-1")
    assert path.read_bytes() == before
    assert session.another().run("run-1").view().status is RunStatus.QUEUED
