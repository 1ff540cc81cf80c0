"""The tool calls that an agent from outside makes by itself, recorded as operations of its turn.

Nobody here starts them or can stop one alone: what is recorded is what the agent says, and of a call that it says
no end of, what may have happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import anyio

from agentrun.agent.batch import record_fact
from agentrun.agent.events import RemoteIdLearned, ToolFinished, ToolRegistered, ToolStarted
from agentrun.agent.protocols import Stretch
from agentrun.agent.registering import idempotency_key
from agentrun.agent.transcript import Transcript
from agentrun.records.codec import Doc
from agentrun.records.operation import WRITE
from agentrun.states import OperationStatus as Status


class Call(NamedTuple):
    """A call as the agent announces it; `call_id` is the agent's own name for it, unique within one turn."""

    call_id: str
    name: str
    arguments: Doc
    effect: str


class Activity:
    """The calls of one turn."""

    def __init__(self, stretch: Stretch, transcript: Transcript, turn_id: Callable[[], str]) -> None:
        self._stretch = stretch
        self._transcript = transcript
        self._turn_id = turn_id
        self._registered: dict[str, tuple[str, Call]] = {}  # what has no outcome yet, with its operation id
        self._started: set[str] = set()

    @property
    def under_way(self) -> set[str]:
        """The calls that have begun and have no outcome yet."""
        return set(self._started)

    def operation_id(self, call_id: str) -> str | None:
        """The operation of a call that has no outcome yet."""
        known = self._registered.get(call_id)
        return known[0] if known else None

    async def registered(self, call: Call) -> str:
        """The agent wants to make this call; returns its operation. Announced again, it is the same one."""
        if call.call_id in self._registered:
            return self._registered[call.call_id][0]
        operation_id = self._transcript.catch_up(self._stretch.events).next_operation_id
        event = ToolRegistered(
            operation_id=operation_id,
            turn_id=self._turn_id(),
            tool_call_id=call.call_id,
            tool_name=call.name,
            arguments=call.arguments,
            effect=call.effect,
            resource=None,
            idempotency_key=idempotency_key(self._stretch, self._transcript, operation_id),
        )
        # Known here first: a stop inside `record` must find it when it closes what is open.
        self._registered[call.call_id] = (operation_id, call)
        await self._stretch.record(event)
        return operation_id

    async def wanted(self, call: Call) -> str:
        """The agent asks whether it may make this call; its operation, of which nothing has begun.

        Some agents call a call begun before they ask: that was no start of it.
        """
        if call.call_id in self._started:
            operation_id = self._forget(call.call_id)
            event = ToolFinished(operation_id, 1, Status.CANCELLED, error="its agent asks for it first")
            await record_fact(self._stretch, event)
        return await self.registered(call)

    async def started(self, call: Call) -> None:
        """The call is under way."""
        operation_id = await self.registered(call)
        if call.call_id not in self._started:
            self._started.add(call.call_id)
            await self._stretch.record(ToolStarted(operation_id, call.call_id, call.name))

    async def has_remote_id(self, call_id: str, remote_id: str) -> None:
        """The outside system gave the job an id."""
        operation_id = self.operation_id(call_id)
        if operation_id:
            await self._stretch.record(RemoteIdLearned(operation_id, remote_id))

    async def finished(self, call: Call, status: Status, output: bytes = b"", error: str | None = None) -> None:
        """The agent says how the call ended, also of one that it had not announced."""
        await self.started(call)
        operation_id = self._forget(call.call_id)
        await record_fact(self._stretch, ToolFinished(operation_id, 1, status, output, error))

    async def refused(self, call_id: str, reason: str) -> None:
        """The call will not be made."""
        if call_id in self._registered:
            operation_id = self._forget(call_id)
            await record_fact(self._stretch, ToolFinished(operation_id, 0, Status.SKIPPED, error=reason))

    async def close(self, reason: str, *, stopped: bool) -> None:
        """Gives every call without an outcome the one that is true: the agent was `stopped`, or said no more of it."""
        with anyio.CancelScope(shield=True):
            for call_id in list(self._registered):
                started, call = call_id in self._started, self._registered[call_id][1]
                operation_id = self._forget(call_id)
                await self._stretch.record(_unended(operation_id, call, reason, started=started, stopped=stopped))

    def _forget(self, call_id: str) -> str:
        self._started.discard(call_id)
        return self._registered.pop(call_id)[0]


def _unended(operation_id: str, call: Call, reason: str, *, started: bool, stopped: bool) -> ToolFinished:
    if not started:
        return ToolFinished(operation_id, 0, Status.SKIPPED, error=reason)
    writes = call.effect == WRITE
    # A write that its own agent lost sight of: nobody knows how it ended, and nobody stopped it.
    status = Status.UNKNOWN if writes and not stopped else Status.CANCELLED
    return ToolFinished(operation_id, 1, status, error=reason, may_have_effects=writes)
