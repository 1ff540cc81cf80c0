"""The resources that the writes of one stretch claim before they are sent off."""

from __future__ import annotations

from agentrun.agent.events import AgentEvent, ToolFinished
from agentrun.records.operation import WRITE
from agentrun.records.run import Run
from agentrun.store.resources import Resources
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


class Claims:
    """Claims for the run `run_dir`; what it holds is known to the record, not to this object alone."""

    def __init__(self, session: SessionDir, run_dir: RunDir) -> None:
        self._resources = Resources(session)
        self._run_dir = run_dir
        self._claimed: set[str] = set()

    def refusal(self, writer: Writer, run: Run, operation_id: str) -> str | None:
        """Claims what the operation writes to, if that has a name; who has it, where that is another write."""
        operation = next((each for each in run.open_operations if each.operation_id == operation_id), None)
        if operation is None or operation.effect != WRITE or operation.resource is None:
            return None
        holder = self._resources.claim(writer, self._run_dir, operation)
        if holder is None:
            self._claimed.add(operation_id)
        return holder

    def ends_with(self, event: AgentEvent) -> bool:
        """Whether `event` may end a claim of this stretch: others build on it then, so that it has to last."""
        return isinstance(event, ToolFinished) and event.operation_id in self._claimed and not event.will_retry

    def release(self, writer: Writer, event: AgentEvent) -> None:
        """Takes back what `event` has settled."""
        if self.ends_with(event):
            self._resources.release_settled(writer, self._run_dir)
