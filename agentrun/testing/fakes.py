"""Models and tools that do what a test tells them to, at once and without a process or a network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import anyio.lowlevel

from agentrun.adapters.models.script import read_turns
from agentrun.adapters.models.scripted import ScriptedModel
from agentrun.agent.protocols import Invocation, ModelReply, ModelRequest, ToolOutcome, ToolSpec
from agentrun.records.codec import Doc
from agentrun.records.operation import WRITE
from agentrun.states import OperationStatus

Work = Callable[[Invocation], Awaitable[ToolOutcome]]


def scripted(*turns: Doc) -> ScriptedModel:
    """The scripted model of these turns, in the format of a script's file."""
    return ScriptedModel(read_turns({"turns": list(turns)}, "test.json"), "test.json")


def calling(*names: str, **turn: Any) -> Doc:
    """A turn of a script that calls these tools."""
    return {"calls": [{"name": name, "arguments": {"of": name}} for name in names], **turn}


def outcomes(*given: ToolOutcome | Exception) -> Work:
    """Gives the outcomes one after the other, and the last one for ever; an exception is raised."""
    left = list(given)

    async def work(invocation: Invocation) -> ToolOutcome:
        await anyio.lowlevel.checkpoint()
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work


async def forever(invocation: Invocation) -> ToolOutcome:
    """Work that only a stop ends."""
    await anyio.sleep_forever()
    raise AssertionError("nothing wakes this up")


async def succeed(invocation: Invocation) -> ToolOutcome:
    """Work that is done at once; its result names the operation."""
    await anyio.lowlevel.checkpoint()
    return ToolOutcome(OperationStatus.SUCCEEDED, f"result of {invocation.operation_id}".encode())


class FakeTool:
    """A tool that does `work`. `invocations` are the attempts it got, in order.

    If it is stopped it has printed `half`, and if it is a write it may have had effects.
    """

    def __init__(
        self,
        name: str,
        work: Work = succeed,
        *,
        effect: Literal["read", "write"] = "read",
        approve: Literal["auto", "ask", "deny"] = "auto",
        retries: int = 0,
        remote_id: str | None = None,
    ) -> None:
        self.invocations: list[Invocation] = []
        self.spec = ToolSpec(name, f"does {name}", {"type": "object"}, effect, approve, None, None, retries)
        self._work = work
        self._remote_id = remote_id

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """One attempt; see `agent.protocols.Tool`."""
        self.invocations.append(invocation)
        try:
            if self._remote_id:
                # As a real tool's id: it is known already, so a stop waits until it is stored.
                with anyio.CancelScope(shield=True):
                    await on_remote_id(self._remote_id)
            return await self._work(invocation)
        except anyio.get_cancelled_exc_class():
            may_have_effects = self.spec.effect == WRITE
            on_stopped(ToolOutcome(OperationStatus.CANCELLED, b"half", may_have_effects=may_have_effects))
            raise


class FakeModel:
    """A model that gives these replies one after the other; an exception is raised.

    It streams `some ` before each. `requests` is what it saw.
    """

    name = "fake"

    def __init__(self, *replies: ModelReply | Exception) -> None:
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The next reply."""
        self.requests.append(request)
        await on_text("some ")
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class FakeRemoteIds(dict[str, str]):
    """Remote ids that nobody stores."""

    def keep(self, name: str, value: str) -> None:
        """See `agent.protocols.RemoteIds`."""
        self[name] = value
