"""An agent that speaks the Agent Client Protocol: started once per stretch, in a conversation that it may know."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial

import anyio

from agentrun.adapters.acp.program import Program, Start, running
from agentrun.adapters.acp.talk import Talk
from agentrun.adapters.agents.held import Held, Unusable
from agentrun.adapters.agents.turns import Turns
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.batch import the_one
from agentrun.agent.protocols import Stretch
from agentrun.config import USUAL_PATIENCE, AgentConfig, Patience
from agentrun.errors import FencedOut


class AcpAgent:
    """The agent that `config` describes. A program named by a relative path lies below `directory`.

    `secrets` are the variables that it must not inherit; `patience` is what it is given when it is stopped.
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
        self._name = config.name if config.name.startswith("acp:") else f"acp:{config.name}"

    async def run(self, stretch: Stretch) -> None:
        """Works until the report is committed, or fails the run if the agent cannot be used."""
        talk = Talk()
        known = stretch.remote_ids.get(self._name)
        held = Held(partial(running, self._start(), known, talk))
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(held.hold)
                try:
                    await self._work(stretch, held, talk)
                finally:
                    held.let_go()
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None

    async def _work(self, stretch: Stretch, held: Held[Program], talk: Talk) -> None:
        try:
            program = await held.get()
        except Unusable as error:
            await stretch.fail(f"the agent {self._name} cannot be used: {error}")
        talk.program = program
        if program.session_id != stretch.remote_ids.get(self._name):
            # Whoever has the run now has a conversation of its own.
            with suppress(FencedOut):
                stretch.remote_ids.keep(self._name, program.session_id)
        # An agent that remembers knows what it has done, so it can go on after it was stopped.
        await Turns(stretch, self._name, talk.turn, repeatable=program.remembers).run()

    def _start(self) -> Start:
        argv = list(self._config.command or ())
        if os.sep in argv[0]:
            argv[0] = os.path.join(self._directory, argv[0])
        environment = self._surroundings.environment_for(self._name, "", self._secrets)
        del environment["AGENTRUN_IDEMPOTENCY_KEY"]  # each turn has its own, which goes along with it
        return Start(
            argv=argv,
            cwd=os.path.abspath(self._surroundings.working_directory),
            env=environment,
            marker=self._surroundings.marker(self._name),
            patience=self._patience,
        )
