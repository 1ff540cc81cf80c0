"""Of the runs of a session one is executed: the one that has the slot.

Covers A47, B5, B11, promise 4.
"""

import anyio
import pytest

from agentrun.errors import SlotTaken
from agentrun.executor.audience import NoAudience
from agentrun.executor.hold import Hold, Terms
from agentrun.states import RunStatus
from agentrun.store.locks import take_liveness
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from agentrun.testing.trees import Executor


def test_a_run_that_has_not_the_slot_is_not_begun(session: SessionDir) -> None:
    trees.accept(session)
    trees.accept(session)
    executor = Executor(session, "run-1")
    liveness = take_liveness(session.run("run-2").directory)
    assert liveness is not None

    async def begin() -> None:
        Hold(session.another(), "run-2", liveness, Terms(15.0, None, None), NoAudience())

    with pytest.raises(SlotTaken, match="waits for its turn behind run-1"):
        anyio.run(begin)
    assert session.run("run-2").load().status is RunStatus.QUEUED
    executor.die()
