"""An agent that drives one run of a real session, without a command around it."""

from __future__ import annotations

from collections.abc import Callable

from agentrun.agent.outside import Unreachable
from agentrun.agent.protocols import Agent
from agentrun.executor.audience import NoAudience
from agentrun.executor.drive import Job, execute
from agentrun.executor.hold import Terms
from agentrun.states import RunStatus
from agentrun.store.locks import take_liveness
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees


async def _nothing_left(is_forced: Callable[[], bool]) -> list[str]:
    return []


def drive(session: SessionDir, agent: Agent, *signals: int) -> RunStatus:
    """Accepts a prompt and executes its run, as a command does; the `signals` came since its acceptance."""
    run_dir = trees.accept(session)
    liveness = take_liveness(run_dir.directory)
    assert liveness is not None
    terms = Terms(lease=15, timeout=None, answer_timeout=None)
    nobody = Unreachable("nothing is configured")
    job = Job(
        session, run_dir.run_id, liveness, agent, nobody, terms, NoAudience(), _nothing_left, lambda _: None,
        list(signals),
    )  # fmt: skip
    return execute(job).run.status
