"""What every agent keeps to, whatever it is: one suite that each kind of agent passes.

A new kind is a new row of `KINDS`: how to make one that answers, one that fails, and one that only a stop ends.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

import agentrun
from agentrun.adapters.acp.agent import AcpAgent
from agentrun.adapters.agents.command import CommandAgent
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Agent, Limits
from agentrun.config import AgentConfig
from agentrun.states import EventType as E
from agentrun.states import OperationStatus, RunStatus
from agentrun.testing.fakes import scripted
from agentrun.testing.stretch import FakeStretch


class Kind(NamedTuple):
    """A kind of agent. `answering` says one text per request, the last one again for any further request."""

    answering: Callable[[Path, tuple[str, ...]], Agent]
    failing: Callable[[Path], Agent]
    stuck: Callable[[Path], Agent]


def loop(*turns: dict[str, object]) -> Agent:
    return LoopAgent(scripted(*turns), [], Limits(), "")


def command(directory: Path, script: str) -> Agent:
    here = str(directory)
    environment = {"PATH": os.environ["PATH"]}
    surroundings = Surroundings(here, None, "ann", "session-test", "run-1", here, here, environment)
    config = AgentConfig("cli", kind="command", command=("sh", "-c", script), effect="read")
    return CommandAgent(config, surroundings, directory=here, secrets=())


def acp(directory: Path, *arguments: str) -> Agent:
    """The small agent, doing the same in each turn whatever it is told: see its flags."""
    here = str(directory)
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment["HEARD"] = str(directory / "heard")
    surroundings = Surroundings(here, None, "ann", "session-test", "run-1", here, here, environment)
    program = (sys.executable, "-m", "agentrun.testing.acp_agent", *arguments)
    return AcpAgent(AgentConfig("small", kind="acp", command=program), surroundings, directory=here, secrets=())


def command_that_answers(directory: Path, texts: tuple[str, ...]) -> Agent:
    for number, text in enumerate(texts, start=1):
        (directory / f"{number}.txt").write_text(text)
    # It counts its starts in a file, as it would keep its own conversation.
    count = 'n=$(($(cat n 2>/dev/null || echo 0) + 1)); [ -e "$n.txt" ] || n=$((n - 1)); echo $n > n; '
    return command(directory, f'{count}cat > /dev/null; cat "$n.txt"')


class OwnAgent:
    """An agent as a plug-in writes it, on the names that `agentrun` offers. `texts` None: it fails; (): it is stuck."""

    def __init__(self, texts: tuple[str, ...] | None) -> None:
        self.texts = texts

    async def run(self, stretch: agentrun.Stretch) -> None:
        await agentrun.Turns(stretch, "own", self.turn, repeatable=True).run()

    async def turn(self, exchange: agentrun.Exchange) -> agentrun.Said:
        if self.texts is None:
            raise agentrun.AgentFailed("it was told to")
        replies = sum(turn.reply is not None for turn in exchange.transcript.turns)
        await exchange.say(self.texts[min(replies, len(self.texts) - 1)] if self.texts else "some of it")
        if not self.texts:
            await anyio.sleep_forever()
        return agentrun.Said(exchange.text)


KINDS = {
    "own": Kind(
        answering=lambda _, texts: OwnAgent(texts),
        failing=lambda _: OwnAgent(None),
        stuck=lambda _: OwnAgent(()),
    ),
    "loop": Kind(
        answering=lambda _, texts: loop(*({"text": text} for text in (*texts, *[texts[-1]] * 5))),
        failing=lambda _: loop({"text": "{{op:nosuch}}"}),
        stuck=lambda _: loop({"text": "some of it", "delayMs": 3600_000}),
    ),
    "command": Kind(
        answering=command_that_answers,
        failing=lambda directory: command(directory, "echo half; exit 3"),
        stuck=lambda directory: command(directory, "echo some of it; exec sleep 3600"),
    ),
}
if importlib.util.find_spec("acp"):
    KINDS["acp"] = Kind(
        answering=lambda directory, texts: acp(directory, "says", *texts),
        failing=lambda directory: acp(directory, "dies"),
        stuck=lambda directory: acp(directory, "hangs"),
    )
STARTS = {E.MODEL_REQUEST_STARTED, E.TOOL_REGISTERED, E.TOOL_STARTED, E.INPUT_DELIVERED}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def drive(stretch: FakeStretch, agent: Agent) -> RunStatus:
    async def limited() -> RunStatus:
        with anyio.fail_after(30):
            return await stretch.drive(agent)

    return anyio.run(limited)


def test_it_answers_the_prompt_with_a_report(kind: Kind, tmp_path: Path) -> None:
    """# covers A30 A33 A49: registered before it is sent, recorded when it has ended, then committed."""
    stretch = FakeStretch("go")
    assert drive(stretch, kind.answering(tmp_path, ("All is well.",))) is RunStatus.COMPLETED
    assert (stretch.report or "").strip() == "All is well."
    types = stretch.types()
    assert types.index(E.INPUT_DELIVERED) < types.index(E.MODEL_REQUEST_STARTED) < types.index(E.MODEL_REQUEST_FINISHED)
    assert all(not operation.is_open for operation in stretch.operations)
    assert "All is well." in "".join(stretch.drafts.values())


@pytest.mark.parametrize("say", [FakeStretch.steer, FakeStretch.follow_up])
def test_what_is_said_meanwhile_is_answered_before_the_end(
    kind: Kind, tmp_path: Path, say: Callable[[FakeStretch, str], None]
) -> None:
    """# covers A5 B16 B17: no input is left behind, and each is delivered once."""
    stretch = FakeStretch("go")
    stretch.at(E.MODEL_REQUEST_STARTED, lambda at: say(at, "and the rest"))
    assert drive(stretch, kind.answering(tmp_path, ("The first.", "And the rest."))) is RunStatus.COMPLETED
    delivered = [e.payload["messageSeqs"] for e in stretch.events if e.type == E.INPUT_DELIVERED]
    assert sorted(seq for seqs in delivered for seq in seqs) == [1, 2]
    assert "And the rest." in (stretch.report or "")


def test_it_fails_with_a_reason_and_no_report(kind: Kind, tmp_path: Path) -> None:
    """# covers A54 A57: half of a report is none."""
    stretch = FakeStretch("go")
    assert drive(stretch, kind.failing(tmp_path)) is RunStatus.FAILED
    failing = next(event for event in stretch.events if event.type == E.RUN_FAILING)
    assert failing.payload["reason"]
    assert stretch.report is None
    assert stretch.open_at_end == ()


@pytest.mark.parametrize("seq", range(3, 9))
def test_stopped_anywhere_it_starts_nothing_more_and_leaves_nothing_open(kind: Kind, tmp_path: Path, seq: int) -> None:
    """# covers A43 A48 A53: whichever came first, the report or the stop, stands."""
    stretch = FakeStretch("go")
    stretch.stop_at(seq)
    status = drive(stretch, kind.answering(tmp_path, ("All is well.",)))
    assert status in (RunStatus.CANCELLED, RunStatus.COMPLETED)
    assert stretch.open_at_end == ()
    if status is RunStatus.CANCELLED:
        types = stretch.types()
        assert not STARTS & set(types[types.index(E.RUN_CANCEL_REQUESTED) :])
        assert stretch.report is None


def test_a_stop_reaches_what_it_is_waiting_for(kind: Kind, tmp_path: Path) -> None:
    """# covers A46: the request is recorded as cancelled, what it had said stays a draft."""
    stretch = FakeStretch("go")

    async def stopped() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(stretch.drive, kind.stuck(tmp_path))
            with anyio.fail_after(30):
                while not stretch.drafts:  # noqa: ASYNC110 - the stretch has no event for a draft
                    await anyio.sleep(0.01)
            stretch.cancel()

    anyio.run(stopped)
    assert stretch.run.status is RunStatus.CANCELLED
    assert [operation.status for operation in stretch.operations] == [OperationStatus.CANCELLED]
    assert stretch.report is None


@pytest.mark.parametrize("seq", range(4, 8))
def test_another_stretch_goes_on_where_this_one_was_left(kind: Kind, tmp_path: Path, seq: int) -> None:
    """# covers A60 A61: nothing is delivered twice, no operation stays open."""
    first = FakeStretch("go")
    first.hooks.append(lambda stretch, event: stretch.hand_over() if event.seq == seq else None)
    agent = kind.answering(tmp_path, ("All is well.",))
    drive(first, agent)
    if first.run.is_over:
        return
    second = FakeStretch.after(first.events, first.messages)
    second.remote_ids.update(first.remote_ids)
    assert drive(second, agent) is RunStatus.COMPLETED
    delivered = [e.payload["messageSeqs"] for e in second.events if e.type == E.INPUT_DELIVERED]
    assert delivered == [[1]]
    assert all(not operation.is_open for operation in second.operations)
