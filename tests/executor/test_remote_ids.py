"""The id of a remote conversation, from the agent that learns it to the run that goes on there.

# covers A26 A34
"""

import json
from pathlib import Path

import pytest

from agentrun.agent.protocols import Stretch
from agentrun.errors import FencedOut
from agentrun.executor.remote_ids import StoredRemoteIds
from agentrun.states import RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from agentrun.testing.trees import Executor, fingerprint
from tests.executor.conftest import drive

SERVICE = "acp:coder"


class Remote:
    """An agent that keeps its conversations elsewhere: it goes on in the one it knows, or begins one."""

    def __init__(self, new_id: str) -> None:
        self._new_id = new_id
        self.went_on_in: str | None = None

    async def run(self, stretch: Stretch) -> None:
        await stretch.begin_request("remote", turn_id="turn-1", operation_id="op-1", attempt=1, at_rest=True)
        self.went_on_in = stretch.remote_ids.get(SERVICE)
        if self.went_on_in is None:
            stretch.remote_ids.keep(SERVICE, self._new_id)
            assert stretch.remote_ids.get(SERVICE) == self._new_id
        await stretch.fail("that is all")


def test_a_later_run_goes_on_in_the_same_remote_conversation(session: SessionDir) -> None:
    first, second = Remote("conversation-1"), Remote("conversation-2")
    assert drive(session, first) is RunStatus.FAILED
    assert drive(session, second) is RunStatus.FAILED
    assert (first.went_on_in, second.went_on_in) == (None, "conversation-1")
    stored = json.loads(Path(session.directory.path, "session.json").read_bytes())
    assert stored["remoteIds"] == {SERVICE: "conversation-1"}
    assert stored["revision"] == 2


def test_an_executor_that_was_replaced_changes_no_id(session: SessionDir) -> None:
    # covers B33 B35
    run_dir = trees.accept(session)
    old = Executor(session, run_dir.run_id)
    StoredRemoteIds(session, old.run_dir, old.lease).keep(SERVICE, "conversation-1")
    old.die()
    Executor(session, run_dir.run_id)
    before = fingerprint(session.directory.path)
    with pytest.raises(FencedOut):
        StoredRemoteIds(session, old.run_dir, old.lease).keep(SERVICE, "conversation-2")
    assert fingerprint(session.directory.path) == before


def test_what_is_no_id_counts_as_none(session: SessionDir) -> None:
    path = Path(session.directory.path, "session.json")
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | {"remoteIds": {SERVICE: 7}}).encode())
    executor = Executor(session, trees.accept(session).run_id)
    assert StoredRemoteIds(session, executor.run_dir, executor.lease).get(SERVICE) is None
