"""A signal that comes before the agent has begun stops the run, however quick the agent is.

# covers A46 A48, promise 17. case C23
"""

from __future__ import annotations

import signal

import pytest

from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits, ModelReply
from agentrun.states import EventType, RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.testing.fakes import FakeModel
from tests.executor.conftest import drive

E = EventType


@pytest.mark.parametrize("reply", [ModelReply("", question="Which week?"), ModelReply("the report")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_run_is_cancelled_and_nothing_is_begun(
    session: SessionDir, reply: ModelReply, number: signal.Signals
) -> None:
    """One that leaves the run to the user, or completes it, before anything else has its turn."""
    agent = LoopAgent(FakeModel(reply), [], Limits(), "")
    assert drive(session, agent, number) is RunStatus.CANCELLED
    kinds = [event.type for event in session.another().run("run-1").all_events()]
    assert kinds[-2:] == [E.RUN_CANCEL_REQUESTED, E.RUN_FINISHED]
    assert E.MODEL_REQUEST_STARTED not in kinds
    assert session.active() is None
