"""What the configuration says of a model, and the key that it is asked with.

A key is read when it is needed, held in memory, handed to nobody but the endpoint it was configured for, and
taken out of every text that leaves the adapter: an endpoint may repeat the key in what it says is wrong.
"""

from __future__ import annotations

import os

from agentrun.errors import ConfigError
from agentrun.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from agentrun.adapters.process import Outcome

# Seconds for the command that prints a key: a password store may ask its user for a passphrase first.
KEY_COMMAND_SECONDS = 120.0
_MOST_KEY_BYTES = 64 * 1024


class Key:
    """An endpoint's key: from a variable, or printed by a command that runs in `directory`; or none."""

    def __init__(
        self,
        *,
        variable: str | None = None,
        command: tuple[str, ...] | None = None,
        directory: str = os.curdir,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.variable = variable
        self.command = command
        self._directory = directory
        self._environment = environment
        # Without the end of the line that `export KEY="$(cat FILE; echo)"` and files of variables leave.
        self._value: str | None = environment.get(variable, "").strip() or None if variable else None

    def check(self, agent: str) -> None:
        """Raises ConfigError if the variable is not set. A command is not tried: it may ask its user something."""
        if self.variable and not self._value:
            raise ConfigError(
                f"agent {agent!r} needs a key in the variable {self.variable}, which is not set",
                hint=f"export {self.variable}=..., or name another with api_key_env, or use api_key_command",
            )

        if self._value and not _fits_header(self._value):
            raise ConfigError(f"agent {agent!r}: the key in the variable {self.variable} {_NO_HEADER}")

    async def read(self) -> str | None:
        """The key, or None if none is needed. Raises ModelFailed if the command does not print one."""
        from agentrun.agent.protocols import ModelFailed

        if self._value is None and self.command:
            self._value = await self._printed(self.command)
        if self._value and not _fits_header(self._value):
            source = self.variable or (self.command or ("",))[0]
            raise ModelFailed(f"the key of {source!r} {_NO_HEADER}")
        return self._value

    def redact(self, text: str) -> str:
        """`text` without the key."""
        from agentrun.config.secrets import hidden

        return hidden(text, (self._value,))

    async def _printed(self, command: tuple[str, ...]) -> str:
        from agentrun.adapters.process import CannotStart, run_process
        from agentrun.agent.protocols import ModelFailed

        marker = {"AGENTRUN_API_KEY_OF": f"{os.getpid()}-{id(self)}"}
        try:
            outcome = await run_process(
                command,
                cwd=self._directory,
                env={**self._environment, **marker},
                marker=marker,
                timeout=KEY_COMMAND_SECONDS,
                grace=1.0,
                max_output=_MOST_KEY_BYTES,
            )
        except CannotStart as error:
            raise ModelFailed(f"the key could not be read: {error}") from error
        with outcome.stdout as stdout:
            # The first line: password stores print notes below it.
            key = stdout.read().decode("utf-8", "replace").strip().partition("\n")[0].strip()
        if outcome.exit_code != 0 or not key:
            raise ModelFailed(f"the key could not be read: {command[0]!r} {_how_it_ended(outcome)}")
        return key


# Servers are told a key in a header. What fits into none would come back quoted in an error.
_NO_HEADER = "has characters that no key has: a line break in it, or quotation marks of a text processor"


def _fits_header(key: str) -> bool:
    return key.isascii() and key.isprintable()


def _how_it_ended(outcome: Outcome) -> str:
    if outcome.timed_out:
        return f"did not end within {KEY_COMMAND_SECONDS:g} s"
    if outcome.exit_code == 0:
        return "printed nothing"
    # Its standard error may say why, and may also hold what it was to keep secret: it is not repeated.
    return f"was ended by signal {outcome.signal}" if outcome.signal else f"ended with exit code {outcome.exit_code}"


class ModelSettings(NamedTuple):
    """What the configuration says of one agent's model; `name` is what stands after the colon.

    `silence` is how many seconds the endpoint may say nothing. `finish_reason` is `optional` for a server that ends
    whole replies without one. `directory` is that of the configuration file, `environment` that of the executor.
    `settings` are the agent's own `settings` table, for plug-ins.
    """

    agent: str
    name: str
    key: Key
    base_url: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    silence: float = 300.0
    finish_reason: Literal["required", "optional"] = "required"
    may_ask: bool = True
    directory: str = os.curdir
    environment: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}

    def redact(self, text: str) -> str:
        """`text` without the key, and without what is secret in the address."""
        from agentrun.config.secrets import hidden, secrets_of

        return hidden(self.key.redact(text), secrets_of(self.base_url))
