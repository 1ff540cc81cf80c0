"""A run completes once, by its executor, and only if nothing of it is left to do; whatever else ends it comes first.

# covers A38 A53 A57 B21; promise 5
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.agent.events import RequestFinished, ToolFinished, ToolRegistered
from agentrun.agent.outside import Unreachable
from agentrun.agent.protocols import Stretch
from agentrun.errors import AgentrunError, CorruptRecord, FencedOut, TransitionRefused
from agentrun.executor.audience import NoAudience
from agentrun.executor.drive import Job, execute
from agentrun.executor.hold import Terms
from agentrun.lifecycle.recovery import settle_open
from agentrun.records.operation import READ
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import closing
from agentrun.store.locks import take_liveness
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint, run_path

E = EventType
RUN = "run-1"


class Acting:
    """An agent that does what a test says."""

    def __init__(self, work: Callable[[Stretch], Awaitable[None]]) -> None:
        self._work = work

    async def run(self, stretch: Stretch) -> None:
        await self._work(stretch)


async def nothing_left(is_forced: Callable[[], bool]) -> list[str]:
    return []


def drive(session: SessionDir, work: Callable[[Stretch], Awaitable[None]]) -> RunStatus:
    """Accepts a prompt and executes its run with `work`, as a command does."""
    run_dir = trees.accept(session)
    liveness = take_liveness(run_dir.directory)
    assert liveness is not None
    terms = Terms(lease=15, timeout=None, answer_timeout=None)
    nobody = Unreachable("nothing is configured")
    agent = Acting(work)
    job = Job(session, run_dir.run_id, liveness, agent, nobody, terms, NoAudience(), nothing_left, lambda _: None, [])
    return execute(job).run.status


async def reply(stretch: Stretch, number: int) -> None:
    """A turn: what waits is delivered, and the model has something to say."""
    await stretch.begin_request("m", turn_id=f"turn-{number}", operation_id=f"op-{number}", attempt=1, at_rest=True)
    await stretch.record(RequestFinished(f"op-{number}", 1, OperationStatus.SUCCEEDED, "end_turn", "the report"))


def ends(session: SessionDir) -> list[str]:
    """How the run ended, as often as that is on record."""
    finished = [event for event in session.another().run(RUN).all_events() if event.type == E.RUN_FINISHED]
    return [event.payload["terminalStatus"] for event in finished]


def reports(session: SessionDir) -> list[str]:
    """The reports in the conversation."""
    return [message.text for message in session.another().messages_since(1) if message.mode == "report"]


@pytest.mark.parametrize("mode", ["steer", "follow-up"])
def test_not_over_an_input_that_nobody_was_given(session: SessionDir, mode: str) -> None:
    answers = []

    async def work(stretch: Stretch) -> None:
        await reply(stretch, 1)
        trees.add(session.another(), RUN, mode, "and stock?")
        answers.append(await stretch.complete("the report"))
        await reply(stretch, 2)
        answers.append(await stretch.complete("the report"))

    assert drive(session, work) is RunStatus.COMPLETED
    assert answers == [False, True]
    assert session.run(RUN).load().returned_inputs == ()
    assert reports(session) == ["the report"]


def test_not_over_an_operation_that_has_not_ended(session: SessionDir) -> None:
    answers = []

    async def work(stretch: Stretch) -> None:
        await reply(stretch, 1)
        await stretch.record(ToolRegistered("op-2", "turn-1", "call-1", "query", {}, READ, None, "key"))
        answers.append(await stretch.complete("the report"))
        assert await stretch.start_call("op-2", "call-1", "query", 1) is None
        answers.append(await stretch.complete("the report"))
        await stretch.record(ToolFinished("op-2", 1, OperationStatus.SUCCEEDED, b"rows"))
        answers.append(await stretch.complete("the report"))

    assert drive(session, work) is RunStatus.COMPLETED
    assert answers == [False, False, True]


def test_not_over_a_stop_that_is_stored(session: SessionDir) -> None:
    """The cancel was accepted first: the report that was ready is none."""

    async def work(stretch: Stretch) -> None:
        await reply(stretch, 1)
        trees.cancel(session.another(), RUN)
        await stretch.complete("the report")
        raise AssertionError("a run that was told to stop does not go on")

    assert drive(session, work) is RunStatus.CANCELLED
    assert ends(session) == ["cancelled"]
    assert reports(session) == []
    assert not run_path(session, RUN, "report.md").exists()


def at_its_end(session: SessionDir) -> Executor:
    """An executor whose run could complete."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    return executor


def input_waits(executor: Executor) -> None:
    trees.add(executor.session, RUN, "follow-up", "and stock?")


def call_is_open(executor: Executor) -> None:
    executor.start_tool("op-2", "read")


def stop_is_stored(executor: Executor) -> None:
    trees.cancel(executor.session, RUN)


def another_took_over(executor: Executor) -> None:
    executor.die()
    Executor(executor.session.another(), RUN).die()


def completed_before(executor: Executor) -> None:
    executor.complete("the first\n")


LEFT: dict[str, tuple[Callable[[Executor], None], type[AgentrunError], str]] = {
    "an input waits": (input_waits, TransitionRefused, r"s1/run-1 cannot complete: message 2 is not delivered"),
    "a call is open": (call_is_open, TransitionRefused, r"s1/run-1 cannot complete: op-2 has not ended"),
    "a stop is stored": (stop_is_stored, TransitionRefused, r"cancelling"),
    "another took over": (another_took_over, FencedOut, r"generation 2, this process holds 1"),
    "it has completed": (completed_before, TransitionRefused, r"completed"),
}


@pytest.mark.parametrize("case", LEFT)
def test_the_commit_itself_refuses_whoever_asks(session: SessionDir, case: str) -> None:
    happen, error, words = LEFT[case]
    executor = at_its_end(session)
    kept = executor.keep(b"the report\n")
    happen(executor)
    before = fingerprint(session.directory.path)
    with writing(session) as writer, pytest.raises(error, match=words):
        closing.finish(writer, executor.lease, executor.run_dir, RunStatus.COMPLETED, report=kept)
    assert fingerprint(session.directory.path) == before
    executor.die()


@pytest.mark.parametrize("damage", ["gone", "other bytes"])
def test_no_report_is_committed_whose_bytes_are_not_there(session: SessionDir, damage: str) -> None:
    executor = at_its_end(session)
    kept = executor.keep(b"the report\n")
    blob = Path(run_path(session, RUN, "blobs", kept["sha256"]))
    if damage == "gone":
        blob.unlink()
    else:
        blob.write_bytes(b"the rep\0\0\0\0")
    before = fingerprint(session.directory.path)
    with writing(session) as writer, pytest.raises(CorruptRecord, match="the report's bytes are gone"):
        closing.finish(writer, executor.lease, executor.run_dir, RunStatus.COMPLETED, report=kept)
    assert fingerprint(session.directory.path) == before
    assert session.run(RUN).load().status is RunStatus.RUNNING
    executor.die()


SETUP = """\
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor
session = Tree({root!r}, "ann").session("s1")
held = {{}}
"""
OLD = """\
kind, run_id = argument
if kind == "claim":
    held["it"] = Executor(session, run_id)
    held["it"].deliver()
    held["it"].ask_model()
    held["it"].die()
    return None
return held["it"].complete("by the old one\\n").status
"""
NEW = """\
kind, run_id = argument
executor = Executor(session, run_id)
return executor.complete("by the new one\\n").status
"""


@pytest.mark.slow
def test_of_two_generations_that_complete_at_once_one_does_and_the_other_is_told(
    crew: Callable[..., Any], tree: Tree, session: SessionDir
) -> None:
    old, new = crew(1, OLD, SETUP.format(root=tree.root)), crew(1, NEW, SETUP.format(root=tree.root))
    for number in range(1, 21):
        run_id = trees.accept(session).run_id
        assert old.all(["claim", run_id]) == [{"ok": None}]
        # Whoever is let go first has a head start; it is each one's turn.
        for each in (old, new) if number % 2 else (new, old):
            each.begin(["complete", run_id])
        (by_old,), (by_new,) = old.results(), new.results()
        assert [each.get("ok") for each in (by_old, by_new)].count("completed") == 1, (by_old, by_new)
        winner = "the old one" if "ok" in by_old else "the new one"
        told = by_new if "ok" in by_old else by_old
        assert told["error"] in ("FencedOut", "TransitionRefused"), told
        assert ("completed" in told["message"]) == (winner == "the old one"), told
        fresh = session.another()
        said = [message.text for message in fresh.messages_since(1) if message.run_id == run_id][1:]
        assert said == [f"by {winner}\n"]
        assert fresh.run(run_id).report() == said[0]
        finished = [event for event in fresh.run(run_id).all_events() if event.type == E.RUN_FINISHED]
        assert len(finished) == 1
    assert json.dumps(session.active()) == "null"


def test_a_check_that_was_left_and_is_configured_no_more_is_settled(session: SessionDir) -> None:
    """As where an executor died over it, and the configuration was changed before the run went on."""

    async def work(stretch: Stretch) -> None:
        await reply(stretch, 1)
        about = {"command": "python3 check.py", "sha256": "0" * 64}
        check = ToolRegistered("op-2", "turn-1", None, "python3 check.py", {}, READ, None, "key", check=about)
        await stretch.record(check)
        assert await stretch.complete("the report")

    assert drive(session, work) is RunStatus.COMPLETED
    (settled,) = [event for event in session.another().run(RUN).all_events() if event.type == E.TOOL_FINISHED]
    assert (settled.payload["operationId"], settled.payload["status"]) == ("op-2", "skipped")


def test_a_lost_check_is_no_call_of_the_tool_that_is_called_like_it(session: SessionDir) -> None:
    """That may be tried again, and stays open for it; a check is made anew."""
    executor = Executor(session, trees.accept(session).run_id)
    executor.deliver()
    executor.ask_model()
    about = {"command": "lint", "sha256": "0" * 64}
    names = {"operationId": "op-2", "toolCallId": None, "toolName": "lint"}
    executor.append(E.TOOL_REGISTERED, turnId="turn-1", arguments={}, effect=READ, check=about, **names)
    executor.append(E.TOOL_STARTED, attempt=1, **names)
    with writing(session) as writer:
        run = settle_open(writer, executor.lease, executor.run_dir, {}, {"lint": 3})
    assert run.open_operations == ()
    executor.die()
