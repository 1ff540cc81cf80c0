"""A check that is a command: the draft on its stdin, the run's directory as its last argument, exit 0 = passed.

It is started, bounded and ended as a tool is, with a tool's environment. Whatever else it does than to exit with 0, the
draft has not passed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection

from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.command import CommandTool
from agentrun.agent.protocols import Invocation, ToolOutcome
from agentrun.config import USUAL_PATIENCE, Patience, ToolConfig

# A check looks at one document; one that takes longer hangs. (The run's own time limit counts as well.)
CHECK_SECONDS = 600.0
# Bytes of its output that are kept. It is read by the model, which has to correct what it says.
MAX_OUTPUT = 1024 * 1024


class CommandCheck:
    """The check `argv`. It runs in `directory`, without the variables named in `secrets`; `patience` is for its end."""

    def __init__(
        self,
        argv: tuple[str, ...],
        surroundings: Surroundings,
        *,
        directory: str,
        secrets: Collection[str],
        patience: Patience = USUAL_PATIENCE,
    ) -> None:
        self._argv = argv
        self._surroundings = surroundings
        self._directory = directory
        self._secrets = secrets
        self._patience = patience

    @property
    def name(self) -> str:
        """The command as a shell would take it, without the directory, which differs from run to run."""
        return shlex.join(self._argv)

    async def run(self, draft: bytes, invocation: Invocation, on_stopped: Callable[[ToolOutcome], None]) -> ToolOutcome:
        """Runs the command once."""
        argv = (*self._argv, self._surroundings.run_directory)
        tool = CommandTool(
            ToolConfig(self.name, argv, effect="read", timeout=CHECK_SECONDS, **self._patience._asdict()),
            self._surroundings,
            directory=self._directory,
            secrets=self._secrets,
            stdin=draft,
            max_output=MAX_OUTPUT,
        )
        return await tool.call(invocation, _no_remote_id, on_stopped)


async def _no_remote_id(_: str) -> None:
    """A check starts nothing outside, so there is nothing to remember."""
