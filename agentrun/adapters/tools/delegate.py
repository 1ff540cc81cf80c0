"""The tool `delegate`: hands a task to another agent, as a run of its own in a session of its own.

It is a command like any other tool, and that command is the executor of the child run. So all that holds for commands
holds for it, and the run can be looked at, steered and stopped like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import anyio

from agentrun.adapters.process import Outcome
from agentrun.adapters.tools.command import CommandTool, _RemoteIdLines
from agentrun.agent.protocols import Invocation, ToolOutcome
from agentrun.config import DELEGATE, Config, ToolConfig

# How the command ends if the child run did: not completed and nothing of it unresolved, or something.
NOT_COMPLETED, UNRESOLVED = 1, 3

_COMMAND = (sys.executable, "-P", "-m", "agentrun.cli.delegated")
_DESCRIPTION = (
    "Hand a task to another agent, which works on it in a session of its own and knows nothing of this conversation: "
    "give it everything it needs. Its report is the result."
)


def delegate_config(config: Config) -> ToolConfig:
    """The tool as a table of the configuration would describe it."""
    agent = {"type": "string", "enum": list(config.agents), "description": "who is to do it, if not the usual one"}
    return ToolConfig(
        DELEGATE,
        _COMMAND,
        description=_DESCRIPTION,
        parameters={
            "type": "object",
            "properties": {"task": {"type": "string"}, "agent": agent},
            "required": ["task"],
        },
        effect="write",
        # What the child does is approved there, call by call.
        approve="auto",
        probe=(*_COMMAND, "probe"),
        cancel=(*_COMMAND, "cancel"),
        grace=config.grace,
        kill_timeout=config.kill_timeout,
    )


class DelegateTool(CommandTool):
    """What an attempt has done outside is what its run did, and that is known as soon as the run is over."""

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """One attempt. Of one that is stopped, too, it is known what it did: its run is over by then."""
        stopped: list[ToolOutcome] = []
        try:
            return await super().call(invocation, on_remote_id, stopped.append)
        except BaseException:
            with anyio.CancelScope(shield=True):
                for known in stopped:
                    on_stopped(await self._settled(invocation, known))
            raise

    async def _settled(self, invocation: Invocation, known: ToolOutcome) -> ToolOutcome:
        """`known`, and how its run ended where its command did not live to say that."""
        probed = await self._probe(invocation, None) if known.may_have_effects else None
        return known._replace(may_have_effects=False) if probed and probed.is_certain else known

    def _outcome(self, outcome: Outcome, lines: _RemoteIdLines) -> ToolOutcome:
        told = super()._outcome(outcome, lines)
        return told._replace(may_have_effects=True) if outcome.exit_code == UNRESOLVED else told

    def _stopped(self, started: bool, outcome: Outcome | None, lines: _RemoteIdLines) -> ToolOutcome:
        told = super()._stopped(started, outcome, lines)
        is_known = outcome is not None and outcome.exit_code in (0, NOT_COMPLETED)
        return told._replace(may_have_effects=False) if is_known else told
