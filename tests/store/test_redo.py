"""What a crash leaves half done is completed by the next writer, once, and derived by readers, who write nothing.

Each case builds the tree as a crash at one point of the order of writes would leave it.

Covers A19, A32, A50, A53, A57, A58, A68, B12, B21, B25, promises 1, 2, 5 and 17.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.errors import AgentrunError
from agentrun.records.codec import decode
from agentrun.records.message import ENDED, QUESTION, REPORT
from agentrun.states import EventType, RunStatus
from agentrun.store.inbox import Order
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint, run_path

E = EventType


def types(session: SessionDir, run_id: str) -> list[str]:
    return [event.type for event in session.run(run_id).all_events()]


def modes(session: SessionDir) -> list[tuple[str, str | None]]:
    return [(message.run_id, message.mode) for message in session.messages_since(1)]


def write(session: SessionDir) -> None:
    """Comes by as a writer that wants nothing."""
    with writing(session):
        pass


def cut_last_line(path: Path, count: int = 1) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-count]))


def path_of(session: SessionDir, *names: str) -> Path:
    return Path(session.directory.path, *names)


# --- the cases: what is done, what of it is lost, and what has to be there again


def no_run_directory(session: SessionDir) -> None:
    trees.accept(session)
    shutil.rmtree(run_path(session, "run-1"))
    path_of(session, "active").unlink()


def no_first_event(session: SessionDir) -> None:
    trees.accept(session)
    run_path(session, "run-1", "operations.jsonl").unlink()
    run_path(session, "run-1", "run.json").unlink()
    path_of(session, "active").unlink()


def empty_event_log(session: SessionDir) -> None:
    trees.accept(session)
    run_path(session, "run-1", "operations.jsonl").write_bytes(b"")
    path_of(session, "active").unlink()


def torn_first_event(session: SessionDir) -> None:
    trees.accept(session)
    log = run_path(session, "run-1", "operations.jsonl")
    log.write_bytes(log.read_bytes()[:-20])
    run_path(session, "run-1", "run.json").unlink()
    path_of(session, "active").unlink()


def no_slot(session: SessionDir) -> None:
    trees.accept(session)
    path_of(session, "active").unlink()


def slot_half_linked(session: SessionDir) -> None:
    trees.accept(session)
    os.link(path_of(session, "active"), path_of(session, ".new-active"))


def no_snapshot(session: SessionDir) -> None:
    trees.accept(session)
    run_path(session, "run-1", "run.json").unlink()


def second_run_lost(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    shutil.rmtree(run_path(session, "run-2"))


def committed_only(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.commit_only()


def no_closing_message(session: SessionDir) -> None:
    committed_only(session)
    with writing(session):
        pass
    path_of(session, "active").write_text("run-1\n")
    cut_last_line(path_of(session, "messages.jsonl"))


def slot_not_freed(session: SessionDir) -> None:
    trees.completed(session)
    path_of(session, "active").write_text("run-1\n")


def old_snapshot_and_no_report(session: SessionDir) -> None:
    accepted = trees.accept(session)
    old = run_path(session, "run-1", "run.json").read_bytes()
    executor = Executor(session, accepted.run_id)
    executor.deliver()
    executor.ask_model()
    executor.complete()
    run_path(session, "run-1", "run.json").write_bytes(old)
    run_path(session, "run-1", "report.md").unlink()
    path_of(session, "active").write_text("run-1\n")


def slot_not_passed_on(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    executor.deliver()
    executor.ask_model()
    executor.complete()
    path_of(session, "active").unlink()


def slot_not_passed_on_and_not_freed(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    executor.deliver()
    executor.ask_model()
    executor.commit_only()


def answer_without_its_event(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask()
    snapshot = run_path(session, "run-1", "run.json").read_bytes()
    trees.answer(session, "run-1", "week 12")
    cut_last_line(run_path(session, "run-1", "operations.jsonl"))
    run_path(session, "run-1", "run.json").write_bytes(snapshot)
    executor.die()


def approval_without_its_event(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask(kind="approval")
    snapshot = run_path(session, "run-1", "run.json").read_bytes()
    trees.answer(session, "run-1", "approved")
    cut_last_line(run_path(session, "run-1", "operations.jsonl"))
    run_path(session, "run-1", "run.json").write_bytes(snapshot)
    executor.die()


def no_question_message(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask(message=False)
    executor.die()


def sentinel_alone(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.die()
    run_path(session, "run-1", "cancel").touch()


def sentinel_on_a_queued_run(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    run_path(session, "run-2", "cancel").touch()


def queued_run_asked_and_not_finished(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    snapshot = run_path(session, "run-2", "run.json").read_bytes()
    trees.cancel(session, "run-2")
    cut_last_line(run_path(session, "run-2", "operations.jsonl"))
    cut_last_line(path_of(session, "messages.jsonl"))
    run_path(session, "run-2", "run.json").write_bytes(snapshot)


def queued_run_ended_without_a_message(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    trees.cancel(session, "run-2")
    cut_last_line(path_of(session, "messages.jsonl"))


def queued_run_told_as_ended_and_not_shown_as_such(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    snapshot = run_path(session, "run-2", "run.json").read_bytes()
    trees.cancel(session, "run-2")
    run_path(session, "run-2", "run.json").write_bytes(snapshot)


def queued_run_told_as_ended_without_a_snapshot(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    trees.cancel(session, "run-2")
    run_path(session, "run-2", "run.json").unlink()


def only_queued_run_asked_and_not_finished(session: SessionDir) -> None:
    trees.accept(session)
    trees.cancel(session, "run-1")
    cut_last_line(run_path(session, "run-1", "operations.jsonl"))
    cut_last_line(path_of(session, "messages.jsonl"))
    run_path(session, "run-1", "run.json").unlink()
    path_of(session, "active").write_text("run-1\n")


def _interrupt_and_forget(session: SessionDir, events: int) -> None:
    """A prompt interrupts run-1; of what that did to run-1, the last `events` events are lost."""
    snapshot = run_path(session, "run-1", "run.json").read_bytes()
    trees.accept(session, "now", order=Order(at_head=True))
    cut_last_line(run_path(session, "run-1", "operations.jsonl"), events)
    run_path(session, "run-1", "run.json").write_bytes(snapshot)
    run_path(session, "run-1", "cancel").unlink(missing_ok=True)


def interrupt_promised_and_not_stored(session: SessionDir) -> None:
    Executor(session, trees.accept(session).run_id)
    _interrupt_and_forget(session, 1)


def interrupt_of_one_that_waits_promised_and_not_stored(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    trees.accept(session, "behind")
    executor.deliver()
    executor.ask_model()
    executor.ask()
    _interrupt_and_forget(session, 1)


def interrupt_of_a_queued_run_promised_and_not_stored(session: SessionDir) -> None:
    trees.accept(session)
    _interrupt_and_forget(session, 2)
    cut_last_line(path_of(session, "messages.jsonl"))
    path_of(session, "active").write_text("run-1\n")


def interrupt_of_a_queued_run_stored_and_not_finished(session: SessionDir) -> None:
    trees.accept(session)
    _interrupt_and_forget(session, 1)
    cut_last_line(path_of(session, "messages.jsonl"))
    path_of(session, "active").write_text("run-1\n")


def unreadable_slot(session: SessionDir) -> None:
    trees.accept(session)
    path_of(session, "active").write_bytes(b"\0\0\0\0\0\0")


def empty_slot(session: SessionDir) -> None:
    trees.completed(session)
    path_of(session, "active").write_bytes(b"")


def slot_of_a_run_that_is_not_there(session: SessionDir) -> None:
    trees.accept(session)
    path_of(session, "active").write_text("run-9\n")


class Case(NamedTuple):
    """`statuses` of the runs afterwards, who has the slot, and the modes of the last messages."""

    build: Callable[[SessionDir], None]
    statuses: dict[str, str]
    active: str | None
    last_modes: list[str]


CASES = [
    Case(no_run_directory, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(no_first_event, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(empty_event_log, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(torn_first_event, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(no_slot, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(slot_half_linked, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(no_snapshot, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(second_run_lost, {"run-1": "running", "run-2": "queued"}, "run-1", ["prompt", "prompt"]),
    Case(committed_only, {"run-1": "completed"}, None, ["prompt", "report"]),
    Case(no_closing_message, {"run-1": "completed"}, None, ["prompt", "report"]),
    Case(slot_not_freed, {"run-1": "completed"}, None, ["prompt", "report"]),
    Case(old_snapshot_and_no_report, {"run-1": "completed"}, None, ["prompt", "report"]),
    Case(slot_not_passed_on, {"run-1": "completed", "run-2": "queued"}, "run-2", ["prompt", "report"]),
    Case(slot_not_passed_on_and_not_freed, {"run-1": "completed", "run-2": "queued"}, "run-2", ["prompt", "report"]),
    Case(answer_without_its_event, {"run-1": "running"}, "run-1", ["question", "answer"]),
    Case(approval_without_its_event, {"run-1": "running"}, "run-1", ["question", "answer"]),
    Case(no_question_message, {"run-1": "waiting_input"}, "run-1", ["prompt", "question"]),
    Case(sentinel_alone, {"run-1": "cancelling"}, "run-1", ["prompt"]),
    Case(sentinel_on_a_queued_run, {"run-1": "running", "run-2": "cancelled"}, "run-1", ["prompt", "ended"]),
    Case(queued_run_asked_and_not_finished, {"run-1": "running", "run-2": "cancelled"}, "run-1", ["prompt", "ended"]),
    Case(queued_run_ended_without_a_message, {"run-1": "running", "run-2": "cancelled"}, "run-1", ["prompt", "ended"]),
    *(
        Case(build, {"run-1": "running", "run-2": "cancelled"}, "run-1", ["prompt", "ended"])
        for build in (queued_run_told_as_ended_and_not_shown_as_such, queued_run_told_as_ended_without_a_snapshot)
    ),
    Case(only_queued_run_asked_and_not_finished, {"run-1": "cancelled"}, None, ["prompt", "ended"]),
    Case(interrupt_promised_and_not_stored, {"run-1": "cancelling", "run-2": "queued"}, "run-1", ["prompt", "prompt"]),
    Case(
        interrupt_of_one_that_waits_promised_and_not_stored,
        {"run-1": "cancelling", "run-2": "queued", "run-3": "queued"},
        "run-1",
        ["prompt", "question", "prompt"],
    ),
    Case(
        interrupt_of_a_queued_run_promised_and_not_stored,
        {"run-1": "cancelled", "run-2": "queued"},
        "run-2",
        ["prompt", "prompt", "ended"],
    ),
    Case(
        interrupt_of_a_queued_run_stored_and_not_finished,
        {"run-1": "cancelled", "run-2": "queued"},
        "run-2",
        ["prompt", "prompt", "ended"],
    ),
    Case(unreadable_slot, {"run-1": "queued"}, "run-1", ["prompt"]),
    Case(empty_slot, {"run-1": "completed"}, None, ["prompt", "report"]),
    Case(slot_of_a_run_that_is_not_there, {"run-1": "queued"}, "run-1", ["prompt"]),
]
# What only a writer takes up (a sentinel, an answer, an interrupt, the end of a queued run) no reader makes up.
TAKEN_UP_BY_A_WRITER = (
    sentinel_alone,
    sentinel_on_a_queued_run,
    queued_run_asked_and_not_finished,
    only_queued_run_asked_and_not_finished,
    interrupt_promised_and_not_stored,
    interrupt_of_one_that_waits_promised_and_not_stored,
    interrupt_of_a_queued_run_promised_and_not_stored,
    interrupt_of_a_queued_run_stored_and_not_finished,
    answer_without_its_event,
    approval_without_its_event,
)
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.build.__name__)


@EACH_CASE
def test_the_next_writer_completes_it_and_the_one_after_it_changes_nothing(tree: Tree, case: Case) -> None:
    session = tree.create_session(session_id="s1")
    case.build(session)
    fresh = tree.session("s1")
    write(fresh)
    assert {run_id: fresh.run(run_id).load().status.value for run_id in fresh.run_ids()} == case.statuses
    assert fresh.active() == case.active
    assert [mode for _, mode in modes(fresh)][-len(case.last_modes) :] == case.last_modes
    assert [message.seq for message in fresh.messages_since(1)] == list(range(1, len(modes(fresh)) + 1))
    for run_id in fresh.run_ids():
        events = list(fresh.run(run_id).all_events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[0].type == E.RUN_ACCEPTED
        assert [event.type for event in events].count("run.accepted") == 1
        assert [event.type for event in events].count("run.finished") <= 1
        if fresh.run(run_id).load().is_over:
            shown = decode(run_path(fresh, run_id, "run.json").read_bytes())
            assert shown["terminalStatus"] == case.statuses[run_id], "what others read of it says so, too"
    before = fingerprint(tree.root)
    write(fresh)
    write(tree.session("s1"))
    assert fingerprint(tree.root) == before


@EACH_CASE
def test_readers_derive_what_is_missing_and_write_nothing(tree: Tree, case: Case) -> None:
    session = tree.create_session(session_id="s1")
    case.build(session)
    before = fingerprint(tree.root)
    fresh = tree.session("s1")
    fresh.read()
    fresh.active()
    told = set()
    for run_id in fresh.newest_run_ids(20):
        run_dir = fresh.run(run_id)
        told.add(run_id)
        view = run_dir.view()
        if case.build not in TAKEN_UP_BY_A_WRITER and view.executor != "lost":
            assert view.status.value == case.statuses[run_id]
        run_dir.load()
        run_dir.snapshot()
        run_dir.lease()
        run_dir.draft()
        assert (run_dir.report() is not None) == (case.statuses[run_id] == "completed")
        list(run_dir.all_events())
        run_dir.events.sync_for_reading()
        run_dir.stop_is_asked(run_dir.load())
    assert told == set(case.statuses)
    list(fresh.messages_backward())
    list(fresh.messages_since(1))
    fresh.tail(3)
    fresh.message_at(1)
    fresh.changed_at()
    fresh.messages.sync_for_reading()
    tree.session_ids()
    list(tree.recent_ids())
    tree.find("@last")
    tree.find("s")
    assert fingerprint(tree.root) == before


@EACH_CASE
def test_after_it_the_session_is_as_usable_as_any_other(tree: Tree, case: Case) -> None:
    """A64, A65, B25."""
    session = tree.create_session(session_id="s1")
    case.build(session)
    fresh = tree.session("s1")
    expected = len(case.statuses) + 1
    assert trees.accept(fresh, "next").run_id == f"run-{expected}"
    assert fresh.run(f"run-{expected}").load().status is RunStatus.QUEUED
    assert fresh.active() == (case.active or f"run-{expected}")


def test_an_answer_is_taken_up_as_it_was_given(tree: Tree) -> None:
    for build, approved in ((answer_without_its_event, None), (approval_without_its_event, True)):
        session = tree.create_session(session_id=build.__name__)
        build(session)
        write(session)
        event = list(session.run("run-1").all_events())[-1]
        assert (event.type, event.payload["messageSeq"], event.payload["questionId"]) == (
            "run.input_received", 3, "question-1",
        )  # fmt: skip
        assert event.payload.get("approved") is approved
        assert session.run("run-1").load().waiting_for is None


def test_a_deleted_snapshot_is_made_again_with_the_same_bytes(session: SessionDir) -> None:
    trees.whole_life(session)
    for run_id in session.run_ids():
        path = run_path(session, run_id, "run.json")
        before = path.read_bytes()
        path.unlink()
        with writing(session) as writer:
            session.run(run_id).write_snapshot(writer)
        assert path.read_bytes() == before
        assert decode(before)["appliedSeq"] == len(types(session, run_id))


@pytest.mark.parametrize(
    "spoilt", [b"", b"{}", b"\0" * 100, b"[]", b'{"status":"running"}', b"{", b'{"formatVersion":1,"runId":"run-2"}']
)
def test_a_spoilt_snapshot_is_passed_over_and_made_again(session: SessionDir, spoilt: bytes) -> None:
    trees.completed(session)
    path = run_path(session, "run-1", "run.json")
    before = path.read_bytes()
    path.write_bytes(spoilt)
    assert session.run("run-1").load().status is RunStatus.COMPLETED
    with writing(session) as writer:
        session.run("run-1").write_snapshot(writer)
    assert path.read_bytes() == before


def test_unknown_fields_survive_in_what_is_written_again(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    path = run_path(session, "run-1", "run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mood": ["good", 1]}))
    fresh = session.another()
    with writing(fresh) as writer:
        fresh.run("run-1").write_snapshot(writer)
    assert json.loads(path.read_text())["mood"] == ["good", 1]
    executor.die()


def test_numbers_of_events_that_only_the_snapshot_tells_of_are_not_used_again(session: SessionDir) -> None:
    """A snapshot never outlives its cause, so the log was cut. Promise 3."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask()
    log, path = run_path(session, "run-1", "operations.jsonl"), run_path(session, "run-1", "run.json")
    snapshot, told = path.read_bytes(), len(types(session, "run-1"))
    cut_last_line(log, 2)
    executor.die()
    view = session.another().run("run-1").view()
    assert (view.status, view.executor, view.run.unread_events) == (RunStatus.RECONCILING, "lost", 2)
    assert trees.cancel(session.another(), "run-1").status is RunStatus.CANCELLING
    seqs = [event.seq for event in session.another().run("run-1").all_events()]
    assert seqs == [*range(1, told - 1), told + 1]
    assert run_path(session, "run-1", "run.json.damaged-0").read_bytes() == snapshot
    for _ in range(2):
        again = session.another().run("run-1").load()
        assert (again.status, again.applied_seq, again.unread_events) == (RunStatus.CANCELLING, told + 1, 2)
        path.unlink(missing_ok=True)


def test_a_damaged_line_of_the_end_does_not_bring_a_completed_run_back(session: SessionDir) -> None:
    """Promise 5."""
    trees.completed(session)
    log = run_path(session, "run-1", "operations.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + b"\0" * (len(lines[-1]) - 1) + b"\n")
    fresh = session.another()
    assert fresh.run("run-1").load().status is RunStatus.COMPLETED
    write(fresh)
    assert fresh.run("run-1").load().status is RunStatus.COMPLETED
    assert trees.accept(fresh).run_id == "run-2"


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_damaged_first_event_costs_nothing_since_the_prompt_tells_the_same(
    session: SessionDir, snapshot: bool
) -> None:
    """Promise 2: one damaged record must not make a session unusable."""
    executor = Executor(session, trees.accept(session).run_id)
    before = session.run("run-1").load()
    log = run_path(session, "run-1", "operations.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"\0" * (len(lines[0]) - 1) + b"\n" + b"".join(lines[1:]))
    if not snapshot:
        run_path(session, "run-1", "run.json").unlink()
    fresh = session.another()
    assert fresh.run("run-1").load() == before
    executor.deliver()
    executor.ask_model()
    executor.complete()
    assert trees.accept(fresh, "next").run_id == "run-2"
    run_dir = fresh.run("run-1")
    list(run_dir.all_events())
    assert [damage.offset for damage in run_dir.events.damage] == [0]


def test_a_run_whose_only_event_is_damaged_is_executed_all_the_same(session: SessionDir) -> None:
    trees.accept(session)
    log = run_path(session, "run-1", "operations.jsonl")
    log.write_bytes(b"\0" * (len(log.read_bytes()) - 1) + b"\n")
    run_path(session, "run-1", "run.json").unlink()
    fresh = session.another()
    assert fresh.run("run-1").view().status is RunStatus.QUEUED
    executor = Executor(fresh, "run-1")
    executor.deliver()
    executor.ask_model()
    executor.complete()
    assert [event.seq for event in session.run("run-1").all_events()][:1] == [2]
    assert session.another().run("run-1").load().status is RunStatus.COMPLETED


@pytest.mark.parametrize("committed", [True, False])
def test_a_damaged_prompt_does_not_keep_its_run_s_slot_or_number(session: SessionDir, committed: bool) -> None:
    """Promise 2: damage does not spread, to later prompts least of all."""
    trees.completed(session)
    executor = Executor(session, trees.accept(session, "second").run_id)
    executor.deliver()
    executor.ask_model()
    messages = path_of(session, "messages.jsonl")
    lines = messages.read_bytes().splitlines(keepends=True)
    messages.write_bytes(b"".join(lines[:-1]) + b"\0" * (len(lines[-1]) - 1) + b"\n")
    fresh = session.another()
    if committed:
        executor.commit_only()
        write(fresh)
        assert fresh.active() is None
        assert modes(fresh)[-1] == ("run-2", "report")
    else:
        write(fresh)
        assert fresh.active() == "run-2"
        executor.die()
    assert trees.accept(fresh, "third").run_id == "run-3"
    assert fresh.active() == ("run-3" if committed else "run-2")
    assert types(fresh, "run-3") == ["run.accepted"]
    assert fresh.run("run-2").load().delivered_inputs == (3,)


def test_a_second_publishing_says_nothing_twice(session: SessionDir) -> None:
    trees.completed(session)
    for _ in range(3):
        path_of(session, "active").write_text("run-1\n")
        write(session.another())
    assert [mode for _, mode in modes(session)] == ["prompt", REPORT]
    trees.accept(session, "next")
    trees.cancel(session, "run-2")
    for _ in range(3):
        path_of(session, "active").write_text("run-2\n")
        write(session.another())
    assert [mode for _, mode in modes(session)] == ["prompt", REPORT, "prompt", ENDED]


def test_a_question_is_asked_once(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.ask()
    for _ in range(3):
        write(session.another())
    assert [mode for _, mode in modes(session)] == ["prompt", QUESTION]


def test_a_report_whose_bytes_are_gone_is_damage_with_its_path(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    executor.commit_only()
    shutil.rmtree(run_path(session, "run-1", "blobs"))
    with pytest.raises(AgentrunError, match="blobs") as caught:
        write(session.another())
    assert caught.value.exit_code == 10


@pytest.mark.parametrize("mode", ["prompt", "compact"])
def test_what_was_accepted_and_not_made_is_open_for_those_who_look_without_reading(
    mode: str, tree: Tree, session: SessionDir
) -> None:
    """A crash after the message and before the slot: `recover` has to find it, whatever has been made so far."""
    trees.completed(session)
    assert list(tree.unfinished_ids()) == []
    last = json.loads(path_of(session, "messages.jsonl").read_bytes().splitlines()[0])
    role = "system" if mode == "compact" else "user"
    last |= {"seq": 3, "runId": "run-2", "role": role, "mode": mode}
    with path_of(session, "messages.jsonl").open("ab") as log:
        log.write(json.dumps(last).encode() + b"\n")
    assert list(tree.unfinished_ids()) == ["s1"]
    run_path(session, "run-2").mkdir(mode=0o700)
    assert list(tree.unfinished_ids()) == ["s1"]


SYNCED = """\
import sys
from agentrun.store.tree import Tree
from agentrun.store.redo import writing
with writing(Tree(sys.argv[1], "ann").session("s1")):
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows the order of the calls")
def test_a_prompt_that_its_writer_may_not_have_synced_is_synced_before_its_run_is_made(
    tree: Tree, session: SessionDir, tmp_path: Path
) -> None:
    """Step 6 of redo: otherwise a run could outlive its prompt, and its number come to mean another one."""
    no_run_directory(session)
    trace = tmp_path / "trace"
    argv = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-s",
        "0",
        "-e",
        "trace=fdatasync,fsync,mkdirat,linkat,write",
        "-o",
        str(trace),
    ]
    subprocess.run([*argv, sys.executable, "-c", SYNCED, tree.root], check=True)
    calls = [line.split(" ", 1)[1] for line in trace.read_text().splitlines() if tree.root in line]
    synced = next(
        n for n, call in enumerate(calls) if call.lstrip().startswith("fdatasync") and "messages.jsonl" in call
    )
    written = next(
        n for n, call in enumerate(calls) if call.lstrip().startswith("write") and "operations.jsonl" in call
    )
    made = next(n for n, call in enumerate(calls) if call.lstrip().startswith("linkat"))
    assert synced < written < made
    assert any("operations.jsonl" in call and "sync" in call.split("(")[0] for call in calls[written:made])


def test_what_lies_in_the_place_of_a_report_is_kept_by_whoever_publishes_it(session: SessionDir) -> None:
    """Promise 18."""
    trees.accept(session)
    Executor(session, "run-1").commit_only()
    run_path(session, "run-1", "report.md").write_text("mine")
    write(session)
    assert run_path(session, "run-1", "report.md").read_text() == "All is well.\n"
    assert run_path(session, "run-1", "report.md.damaged-0").read_text() == "mine"
