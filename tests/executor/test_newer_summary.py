"""A run goes on beside a summary that a newer version has made meanwhile, and makes none of its own."""

from __future__ import annotations

from pathlib import Path

from agentrun.agent.events import RequestFinished
from agentrun.agent.protocols import Stretch
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees
from tests.executor.conftest import drive

NEWER = b'{"formatVersion": 2, "chapters": []}'


class Summarising:
    """Summarises what was said before; meanwhile the summary of a newer version is put in place."""

    def __init__(self, summary: Path) -> None:
        self.summary = summary

    async def run(self, stretch: Stretch) -> None:
        covers = {"messageSeq": 1, "runId": None, "eventSeq": None}
        await stretch.begin_compaction(covers)
        self.summary.write_bytes(NEWER)
        self.summary.chmod(0o600)
        await stretch.end_compaction("op-1", covers, "They have talked about it.", None)
        await stretch.begin_request("m", turn_id="turn-1", operation_id="op-2", attempt=1, at_rest=True)
        await stretch.record(RequestFinished("op-2", 1, OperationStatus.SUCCEEDED, "end_turn", "the report"))
        assert await stretch.complete("the report")


def test_a_summary_of_a_newer_version_is_not_replaced_and_the_run_goes_on(session: SessionDir) -> None:
    # covers A13 A20
    trees.completed(session)
    summary = Path(session.directory.path, "summary.json")
    assert drive(session, Summarising(summary)) is RunStatus.COMPLETED
    assert summary.read_bytes() == NEWER
    (event,) = [each for each in session.run("run-2").all_events() if each.type == EventType.RUN_COMPACTED]
    assert event.payload["covers"] is None
    assert "summary.json has format 2" in event.payload["error"]
