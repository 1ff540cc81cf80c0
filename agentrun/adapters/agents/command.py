"""An agent that is a command: each turn starts it once, with the prompt on stdin or as an argument.

What it prints becomes the draft as it comes, and the report when it has exited with 0. A stop ends it with everything
that it started. What the user says meanwhile reaches it with its next start.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from agentrun.adapters.agents.lines import Output
from agentrun.adapters.agents.prompt import prompt_text
from agentrun.adapters.agents.turns import AgentFailed, Exchange, Said, Turns
from agentrun.adapters.process import CannotStart, run_process
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.telling import how_it_ended, with_stderr
from agentrun.agent.protocols import Stretch
from agentrun.agent.registering import idempotency_key
from agentrun.config import USUAL_PATIENCE, AgentConfig, Patience
from agentrun.errors import FencedOut
from agentrun.records.operation import READ

PROMPT, REMOTE_SESSION = "{prompt}", "{session}"
# Under this name the agent finds in its environment what it called the conversation the last time.
SESSION_VARIABLE = "AGENTRUN_REMOTE_SESSION"


class _Start(NamedTuple):
    """How one turn starts the command."""

    argv: list[str]
    stdin: bytes
    session_id: str | None


class CommandAgent:
    """The agent that `config` describes. A program named by a relative path lies below `directory`.

    `secrets` are the variables that the command must not inherit; `patience` is what it is given when it is stopped.
    """

    def __init__(
        self,
        config: AgentConfig,
        surroundings: Surroundings,
        *,
        directory: str,
        secrets: Collection[str],
        patience: Patience = USUAL_PATIENCE,
    ) -> None:
        self._config = config
        self._surroundings = surroundings
        self._directory = directory
        self._secrets = secrets
        self._patience = patience
        self._name = config.name if config.name.startswith("command:") else f"command:{config.name}"

    async def run(self, stretch: Stretch) -> None:
        """Works until the report is committed. Raises only what `stretch` raises."""
        await Turns(stretch, self._name, self._turn, repeatable=self._config.effect == READ).run()

    async def _turn(self, exchange: Exchange) -> Said:
        start = self._start(exchange)
        output = Output(exchange, self._config.output)
        operation_id = exchange.operation_id
        key = idempotency_key(exchange.stretch, exchange.transcript, operation_id)
        known = {SESSION_VARIABLE: start.session_id} if start.session_id else {}
        try:
            outcome = await run_process(
                start.argv,
                cwd=self._surroundings.working_directory,
                env=self._surroundings.environment_for(operation_id, key, self._secrets) | known,
                marker=self._surroundings.marker(operation_id),
                stdin=start.stdin,
                timeout=None,
                grace=self._patience.grace,
                kill=self._patience.kill_timeout,
                max_output=0,  # it is taken up as it comes
                on_stdout=output.take,
            )
        except CannotStart as error:
            raise AgentFailed(str(error)) from error
        outcome.stdout.close()
        said = await output.end()
        self._keep(exchange.stretch, output.session_id, start.session_id)
        if outcome.exit_code != 0:
            raise AgentFailed(with_stderr(how_it_ended(outcome), outcome))
        return said

    def _start(self, exchange: Exchange) -> _Start:
        session_id = exchange.stretch.remote_ids.get(self._name)
        prompt = prompt_text(exchange.stretch, exchange.transcript, remembers=session_id is not None)
        argv = self._config.resume if session_id and self._config.resume else self._config.command
        assert argv
        as_argument = any(PROMPT in word for word in argv)
        filled = [_filled(word, prompt, session_id or "") for word in argv]
        if os.sep in filled[0]:
            filled[0] = os.path.join(self._directory, filled[0])
        return _Start(filled, b"" if as_argument else prompt.encode("utf-8", "replace"), session_id)

    def _keep(self, stretch: Stretch, session_id: str | None, before: str | None) -> None:
        if session_id and session_id != before:
            # Whoever has the run now has a conversation of its own.
            with suppress(FencedOut):
                stretch.remote_ids.keep(self._name, session_id)


def _filled(word: str, prompt: str, session_id: str) -> str:
    """The word with its placeholders replaced, in one pass: a prompt may hold what looks like one."""
    parts = word.split(PROMPT)
    return prompt.join(part.replace(REMOTE_SESSION, session_id) for part in parts)
