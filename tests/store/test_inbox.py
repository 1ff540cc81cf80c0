"""Input is accepted once, as one durable line, whoever says it how often and at the same time as how many others.

Covers A2, A5, A7, A18, A32, A75, B5, B6, B15-B17, B56, cases C3 and C14, promises 1, 3, 4 and 10.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import ImpossibleMode, KeyReused, SeqDiffers, TransitionRefused
from agentrun.records.attachment import Attachment, attachments_of
from agentrun.states import EventType, RunStatus
from agentrun.store import inbox
from agentrun.store.inbox import Input, Order
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint

E = EventType


def say(session: SessionDir, text: str, key: str | None) -> tuple[int, bool]:
    """Adds a follow-up to run-1 as a command does: its number, and whether it was new."""
    with writing(session) as writer:
        said = Input(text, trees.ACTOR, key)
        known = inbox.already_accepted(writer, said)
        message = known or inbox.add_input(writer, "run-1", "follow-up", said)
        return message.seq, known is None


def test_a_prompt_is_a_line_that_holds_all_that_its_run_needs(session: SessionDir) -> None:
    attachment = Attachment("a.csv", "0" * 64, 3, "file")
    order = Order(
        agent="analyst", references=("run-1",), attachments=(attachment,), timeout=90.5,
        config={"path": "/c", "sha256": "0"}, parent_run={"sessionId": "s0", "runId": "run-4"}, continues="run-2",
    )  # fmt: skip
    run_dir = trees.accept(session, "text\u2028\x00", key="k", order=order)
    line = json.loads(Path(session.directory.path, "messages.jsonl").read_text())
    assert {name: line[name] for name in ("seq", "sessionId", "runId", "role", "mode", "text", "key", "actor")} == {
        "seq": 1, "sessionId": "s1", "runId": "run-1", "role": "user", "mode": "prompt", "text": "text\u2028\x00",
        "key": "k", "actor": trees.ACTOR,
    }  # fmt: skip
    (message,) = session.tail(1)
    assert attachments_of(message) == [attachment]
    run = run_dir.load()
    assert run.status is RunStatus.QUEUED
    assert (run.agent, run.references, run.timeout, run.continues) == ("analyst", ("run-1",), 90.5, "run-2")
    assert (run.config, run.parent_run) == (order.config, order.parent_run)
    # And the same again from that line alone.
    shutil.rmtree(run_dir.directory.path)
    with writing(session.another()):
        pass
    assert session.run("run-1").load() == run


def test_runs_are_numbered_densely_and_the_first_open_one_has_the_slot(session: SessionDir) -> None:
    assert trees.completed(session) == "run-1"
    assert [trees.accept(session).run_id for _ in range(3)] == ["run-2", "run-3", "run-4"]
    assert session.active() == "run-2"
    assert session.run_ids() == ["run-4", "run-3", "run-2", "run-1"]
    assert session.newest_run_ids(2) == ["run-4", "run-3"]
    message = session.message_at(5)
    assert message is not None
    assert message.accept is not None
    assert message.accept["behind"] == ["run-2", "run-3"]


@pytest.mark.slow
def test_the_queue_goes_in_its_order_and_the_head_stands_before_it(session: SessionDir) -> None:
    executor = Executor(session, trees.accept(session).run_id)
    trees.accept(session, "second")
    trees.accept(session, "third")
    trees.accept(session, "urgent", order=Order(at_head=True))
    trees.accept(session, "more urgent", order=Order(at_head=True))
    # What comes to the head stops the one that holds the slot, once.
    types = [event.type for event in session.run("run-1").all_events()]
    assert types.count(E.RUN_CANCEL_REQUESTED) == 1
    executor.wind_down()
    started = []
    for _ in range(4):
        active = session.active()
        assert active is not None
        started.append(active)
        executor = Executor(session, active)
        executor.deliver()
        executor.ask_model()
        executor.complete()
    assert started == ["run-5", "run-4", "run-2", "run-3"]
    assert session.active() is None


# --- keys


@pytest.mark.parametrize("key", ["k", "", "x" * 10_000, "../../x", "a/b", "\x00", "é\u2028", "\udc80", ".", "-x"])
def test_a_key_makes_repeating_harmless_whatever_it_is_made_of(tree: Tree, session: SessionDir, key: str) -> None:
    trees.accept(session)
    assert say(session, "text", key) == (2, True)
    before = fingerprint(tree.root)
    assert say(session, "text", key) == (2, False)
    assert say(tree.session("s1"), "text", key) == (2, False)
    assert fingerprint(tree.root) == before
    with pytest.raises(KeyReused) as caught:
        say(session, "other text", key)
    assert caught.value.exit_code == 7
    assert fingerprint(tree.root) == before
    assert say(session, "text", None) == (3, True)
    assert say(session, "text", None) == (4, True)


def test_a_key_still_works_when_the_run_is_long_over(session: SessionDir) -> None:
    """Case C14."""
    trees.accept(session)
    assert say(session, "text", "k") == (2, True)
    executor = Executor(session, "run-1")
    executor.deliver()
    executor.ask_model()
    executor.complete()
    trees.completed(session, "next")
    assert say(session, "text", "k") == (2, False)


def test_a_key_is_of_its_session(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    say(session, "text", "k")
    other = tree.create_session(session_id="s2")
    trees.accept(other)
    assert say(other, "other text", "k") == (2, True)


def hint_path(session: SessionDir) -> Path:
    (path,) = Path(session.directory.path, "keys").iterdir()
    return path


@pytest.mark.parametrize(
    "hint", [b"", b"{", b"\0" * 10, b'{"seq":"2"}', b'{"seq":1}', b'{"seq":99}', b'{"seq":-1}', b"[2]"]
)
def test_a_hint_that_leads_to_another_line_never_gives_that_line_for_an_answer(
    session: SessionDir, hint: bytes
) -> None:
    trees.accept(session)
    assert say(session, "text", "k") == (2, True)
    hint_path(session).write_bytes(hint)
    with writing(session) as writer:
        found = inbox.already_accepted(writer, Input("text", trees.ACTOR, "k"))
    assert found is None or found.seq == 2


def test_a_crash_between_the_hint_and_the_message_costs_nothing(session: SessionDir) -> None:
    trees.accept(session)
    assert say(session, "text", "k") == (2, True)
    messages = Path(session.directory.path, "messages.jsonl")
    lines = messages.read_bytes().splitlines(keepends=True)
    messages.write_bytes(lines[0])
    fresh = session.another()
    # Nobody has heard of message 2, so its number goes to the next, and the key is new.
    assert say(fresh, "somebody else's", None) == (2, True)
    assert say(fresh, "text", "k") == (3, True)
    assert say(fresh, "text", "k") == (3, False)


def test_a_crash_in_the_middle_of_the_message_costs_nothing(session: SessionDir) -> None:
    trees.accept(session)
    say(session, "text", "k")
    messages = Path(session.directory.path, "messages.jsonl")
    messages.write_bytes(messages.read_bytes()[:-10])
    fresh = session.another()
    assert say(fresh, "text", "k") == (2, True)
    assert say(fresh, "text", "k") == (2, False)


# --- what was expected


def test_an_expected_number_holds_or_nothing_is_written(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    trees.add(session, "run-1", "steer", "x")
    before = fingerprint(tree.root)
    with writing(session) as writer:
        inbox.check_last_seq(writer, 2)
        inbox.check_last_seq(writer, None)
        for wrong in (0, 1, 3, -1, 10**9):
            with pytest.raises(SeqDiffers, match="is 2, not") as caught:
                inbox.check_last_seq(writer, wrong)
            # What the hint shows must be something.
            assert ("--since" in str(caught.value.hint)) == (wrong < 2)
    assert fingerprint(tree.root) == before


def test_an_answer_to_a_run_that_waits_for_nothing_leaves_no_line(tree: Tree, session: SessionDir) -> None:
    trees.accept(session)
    before = fingerprint(tree.root)
    for _ in range(2):
        with pytest.raises(ImpossibleMode, match="waits for no answer"):
            trees.answer(session, "run-1", "week 12")
    assert fingerprint(tree.root) == before
    executor = Executor(session, "run-1")
    executor.deliver()
    executor.ask_model()
    executor.ask()
    assert trees.answer(session, "run-1", "week 12").question_id == "question-1"
    with pytest.raises(ImpossibleMode):
        trees.answer(session, "run-1", "week 13")
    assert [message.mode for message in session.messages_since(1)] == ["prompt", "question", "answer"]
    executor.die()


# --- stopping


def test_a_run_that_never_started_is_over_with_the_request(session: SessionDir) -> None:
    trees.accept(session)
    trees.accept(session, "second")
    assert trees.cancel(session, "run-1", "not needed").status is RunStatus.CANCELLED
    assert session.active() == "run-2"
    types = [event.type for event in session.run("run-1").all_events()]
    assert types == ["run.accepted", "run.cancel_requested", "run.finished"]
    assert session.run("run-1").directory.stat("cancel") is None
    closing = session.tail(1)[0]
    assert (closing.run_id, closing.role, closing.mode) == ("run-1", "system", "ended")
    assert closing.text == "run-1 was cancelled: not needed\nnot delivered: message 1"
    assert session.run("run-1").load().returned_inputs == (1,)


def test_a_run_that_has_started_is_winding_down_and_keeps_the_slot(session: SessionDir) -> None:
    """A48, B26."""
    executor = Executor(session, trees.accept(session).run_id)
    run = trees.cancel(session, "run-1", "wrong week")
    assert (run.status, run.ending, run.reason) == (RunStatus.CANCELLING, RunStatus.CANCELLED, "wrong week")
    assert session.active() == "run-1"
    assert session.run("run-1").directory.stat("cancel") is not None
    event = list(session.run("run-1").all_events())[-1]
    assert (event.payload["actor"], event.payload["intent"], event.payload["via"]) == (trees.ACTOR, "cancel", "command")
    executor.die()


def test_a_run_that_is_over_takes_no_request_to_stop(tree: Tree, session: SessionDir) -> None:
    """A68."""
    trees.completed(session)
    before = fingerprint(tree.root)
    with pytest.raises(TransitionRefused):
        trees.cancel(session, "run-1")
    assert fingerprint(tree.root) == before


# --- many at once

PROMPT = """\
from agentrun.store import inbox
from agentrun.store.tree import Tree
from agentrun.store.redo import writing
from agentrun.lifecycle.routing import route
from agentrun.testing import trees
session = Tree({root!r}, "ann").session("s1")
"""
PROMPT_WORK = """\
with writing(session) as writer:
    active = writer.session.active()
    route(session.run(active).view() if active else None, "prompt", None)
    message, run_dir = inbox.accept_prompt(writer, trees.said(argument), inbox.Order())
    return [run_dir.run_id, message.seq]
"""


@pytest.mark.parametrize(
    "rounds", [pytest.param(20, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.exhaustive)]
)
def test_of_sixteen_prompts_at_once_exactly_one_is_accepted_each_time(
    crew: Callable[..., Any], tree: Tree, session: SessionDir, rounds: int
) -> None:
    """Case C3, promise 4, B5: the rest learn which run it is."""
    setup = PROMPT.format(root=tree.root)
    prompters = crew(16, PROMPT_WORK, setup)
    writers = crew(4, 'return [trees.add(session, argument, "steer", "x").seq for _ in range(5)]', setup)
    for number in range(1, rounds + 1):
        run_id = f"run-{number}"
        results = prompters.all("go")
        won = [result["ok"] for result in results if "ok" in result]
        lost = [result for result in results if "ok" not in result]
        assert [each[0] for each in won] == [run_id]
        assert [(each["error"], each["run"]) for each in lost] == [("SlotTaken", run_id)] * 15
        writers.begin(run_id)
        executor = Executor(session, run_id)
        added = sorted(seq for result in writers.results() for seq in result["ok"])
        assert added == list(range(won[0][1] + 1, won[0][1] + 21))
        executor.deliver()
        executor.ask_model()
        executor.complete()
    stored = [message.seq for message in session.messages_since(1)]
    assert stored == list(range(1, rounds * 22 + 1))
    assert session.run_ids() == [f"run-{number}" for number in range(rounds, 0, -1)]


@pytest.mark.slow
def test_of_sixteen_that_use_one_key_at_once_one_writes_and_all_get_its_number(
    crew: Callable[..., Any], tree: Tree, session: SessionDir
) -> None:
    trees.accept(session)
    work = """\
with writing(session) as writer:
    said = trees.said("text", argument)
    known = inbox.already_accepted(writer, said)
    return (known or inbox.add_input(writer, "run-1", "steer", said)).seq
"""
    members = crew(16, work, PROMPT.format(root=tree.root))
    for number in range(10):
        assert {result["ok"] for result in members.all(f"key-{number}")} == {number + 2}
    assert len(list(session.messages_since(1))) == 11


@pytest.mark.slow
def test_of_sixteen_that_expect_the_same_last_message_one_gets_through(
    crew: Callable[..., Any], tree: Tree, session: SessionDir
) -> None:
    """A75: two devices at once never write over each other unseen."""
    trees.accept(session)
    work = """\
with writing(session) as writer:
    inbox.check_last_seq(writer, argument)
    return inbox.add_input(writer, "run-1", "steer", trees.said("x")).seq
"""
    members = crew(16, work, PROMPT.format(root=tree.root))
    for last in range(1, 11):
        results = members.all(last)
        assert [result["ok"] for result in results if "ok" in result] == [last + 1]
        assert {result["error"] for result in results if "ok" not in result} == {"SeqDiffers"}


@pytest.mark.slow
def test_completing_and_cancelling_at_once_has_one_winner_and_the_other_is_told(
    crew: Callable[..., Any], tree: Tree, session: SessionDir
) -> None:
    """# covers A53 A68 B21; promise 5."""
    cancellers = crew(3, "return trees.cancel(session, argument).status", PROMPT.format(root=tree.root))
    ends = set()
    for number in range(1, 31):
        run_id = trees.accept(session).run_id
        executor = Executor(session, run_id)
        executor.deliver()
        executor.ask_model()
        cancellers.begin(run_id)
        with suppress(TransitionRefused):
            executor.complete()
        results = cancellers.results()
        run = session.run(run_id).load()
        if run.is_over:
            assert run.status is RunStatus.COMPLETED
            assert {result["error"] for result in results} == {"TransitionRefused"}
        else:
            assert run.status is RunStatus.CANCELLING
            assert [result["ok"] for result in results] == ["cancelling"] * 3
            assert executor.wind_down().status is RunStatus.CANCELLED
            assert session.run(run_id).report() is None
        ends.add(session.run(run_id).load().status)
        types = [event.type for event in session.run(run_id).all_events()]
        assert types.count("run.finished") == 1
        assert types[-1] == "run.finished"
        assert number == len(session.run_ids())
    assert ends <= {RunStatus.COMPLETED, RunStatus.CANCELLED}
