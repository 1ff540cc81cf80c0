"""What the configuration file says: agents, models, tools and budgets, as frozen values.

A `Config` is checked when it is loaded: an unknown key, a wrong type, or a name that nothing stands for is
an error that names the file, the table and the key, before a run depends on it. Whether this version can also
drive what is configured is decided where an agent is built from it.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from agentrun.errors import ConfigError, UsageError

LEASE_SECONDS = 15.0
MAX_ATTEMPTS = 3
# A model that never stops calling costs money, so these two are limited without being asked to. Nothing is
# ended by a clock that nobody set: there is no time-out unless the configuration or the command line has one.
MAX_TURNS = 50
MAX_TOOL_CALLS = 200
# Between SIGTERM and SIGKILL.
GRACE_SECONDS = 5.0

# A renewal is a write with an fsync; a shorter lease would be lost to a slow disk.
SHORTEST_LEASE_SECONDS = 0.1
# Deadlines are written as dates; one that lies further away is a typing error.
LONGEST_DURATION_SECONDS = 3650 * 86400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_EXAMPLE = """    [agents.first]
    model = "scripted:first.json"
  docs/agents.md has the kinds of agents and models, and the format of a script"""
# The APIs of the common models take no other names for tools.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

ANY_ARGUMENTS = {"type": "object"}
MCP_PREFIX = "mcp:"
Reader = Callable[[Any], Any]


class ToolConfig(NamedTuple):
    """`[tools.NAME]`: a command that a model may call. Times in seconds; `timeout` None is no limit.

    `argv`, `probe` and `cancel` run in the directory of the configuration file.
    """

    name: str
    argv: tuple[str, ...]
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


class McpConfig(NamedTuple):
    """`[mcp.NAME]`: a server of tools (Model Context Protocol, stdio)."""

    name: str
    command: str
    args: tuple[str, ...] = ()


class AgentConfig(NamedTuple):
    """`[agents.NAME]`. Times in seconds; None is no limit.

    `model` is set for kind `loop`, `command` for the others. An agent given on the command line
    (`command:llm -m local`) is named as it was written there.
    """

    name: str
    kind: Literal["loop", "acp", "command"] = "loop"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_command: tuple[str, ...] | None = None
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


class Config(NamedTuple):
    """The whole configuration. `path` (absolute) and `sha256` of its bytes are None if there is no file.

    `lease` is in seconds; `max_attempts` is how often a run may be taken up.
    """

    path: str | None = None
    sha256: str | None = None
    default_agent: str | None = None
    lease: float = LEASE_SECONDS
    max_attempts: int = MAX_ATTEMPTS
    agents: Mapping[str, AgentConfig] = {}
    tools: Mapping[str, ToolConfig] = {}
    mcp: Mapping[str, McpConfig] = {}

    @property
    def directory(self) -> str:
        """What relative paths are relative to; without a file there are none, and it is `.`."""
        return os.path.dirname(self.path) if self.path else os.curdir

    def agent(self, name: str | None) -> AgentConfig:
        """The agent `name`; None is the default one. `local`, `acp:CMD` and `command:CMD` need no table.

        Raises ConfigError if there is none, and UsageError for a command line that cannot be split.
        """
        chosen = name or self._default()
        if chosen in self.agents:
            return self.agents[chosen]
        inline = _inline_agent(chosen)
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


def load_config(path: str | None, *, optional: bool = False) -> Config:
    """The configuration in the TOML file `path`; None, or an `optional` file that is missing: the defaults.

    Raises ConfigError for a file that cannot be read or does not say what it should.
    """
    if path is None:
        return Config()
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if optional:
            return Config()
        raise ConfigError(f"there is no configuration file {path}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the configuration file {path!r} cannot be read: {reason}") from error
    return _read(os.path.abspath(path), content)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `500ms`, `30s`, `10m`, `2h`, `7d` or `1h30m`. Raises UsageError."""
    if not _DURATION.fullmatch(text):
        raise UsageError(f"{text[:80]!r} is not a duration; write one like 500ms, 30s, 10m, 2h or 7d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
    if seconds > LONGEST_DURATION_SECONDS:
        raise UsageError(f"{text[:80]} is too long for a duration; the longest is 3650d")
    return seconds


def _inline_agent(text: str) -> AgentConfig | None:
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
    where = path or "agentrun.toml in the root, or into a file given with --config"
    return ConfigError(message, hint=f"write into {where}, for example:\n{_EXAMPLE}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` with the known name that `name` is nearest to, or nothing if none is near."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


# Reading the file. A reader gets the value of a key and returns what it means, or raises `_Wrong`.


class _Wrong(Exception):
    """Says what the value of a key should have been."""


def _reader(expected: str, fits: Callable[[Any], bool], meaning: Reader = lambda value: value) -> Reader:
    def read(value: Any) -> Any:
        if not fits(value):
            raise _Wrong(expected)
        return meaning(value)

    return read


def _one_of(*words: str) -> Reader:
    return _reader(" or ".join(f'"{word}"' for word in words), lambda value: value in words)


def _count(at_least: int) -> Reader:
    return _reader(f"a whole number of at least {at_least}", lambda v: type(v) is int and v >= at_least)


def _seconds(at_least: float = 0.001) -> Reader:
    def read(value: Any) -> float:
        try:
            seconds = parse_duration(_text(value))
        except (UsageError, _Wrong) as error:
            raise _Wrong('a duration such as "500ms", "30s", "10m", "2h" or "7d"') from error
        if seconds < at_least:
            raise _Wrong(f"a duration of at least {at_least:g} s")
        return seconds

    return read


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_argv(value: Any) -> bool:
    # An argument ends at its first NUL (execve(2)), so there must be none.
    return _is_texts(value) and value != [] and not any("\0" in each for each in value)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(_is_json(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int) or (isinstance(value, float) and abs(value) < float("inf"))


_text = _reader("text", lambda value: isinstance(value, str))
_name = _reader("text that is not empty", lambda value: isinstance(value, str) and value != "")
_texts = _reader("a list of texts", _is_texts, tuple)
_argv = _reader('a command as a list of texts, such as ["python3", "query.py"]', _is_argv, tuple)
_argvs = _reader(
    'a list of commands, such as [["python3", "check.py"]]',
    lambda value: isinstance(value, list) and all(_is_argv(each) for each in value),
    lambda value: tuple(tuple(each) for each in value),
)
_table = _reader("a table", lambda value: isinstance(value, dict))
_schema = _reader(
    "a JSON schema as a table, without dates and infinite numbers",
    lambda value: isinstance(value, dict) and _is_json(value),
)

_TOP: dict[str, Reader] = {
    "default_agent": _name,
    "lease": _seconds(SHORTEST_LEASE_SECONDS),
    "max_attempts": _count(1),
    "agents": _table,
    "tools": _table,
    "mcp": _table,
}
_ANY_KIND: dict[str, Reader] = {
    "kind": _one_of("loop", "acp", "command"),
    "checks": _argvs,
    "timeout": _seconds(),
    "answer_timeout": _seconds(),
}
# What only our own loop can keep to: an agent from outside has its own model, tools and counts.
_LOOP: dict[str, Reader] = {
    "model": _name,
    "base_url": _name,
    "api_key_env": _name,
    "api_key_command": _argv,
    "system": _text,
    "tools": _texts,
    "max_turns": _count(1),
    "max_tool_calls": _count(0),
    "max_tokens": _count(1),
    "compact_above_tokens": _count(1),
}
_OUTSIDE: dict[str, Reader] = {"command": _argv}
_TOOL: dict[str, Reader] = {
    "argv": _argv,
    "description": _text,
    "parameters": _schema,
    "effect": _one_of("read", "write"),
    "approve": _one_of("auto", "ask", "deny"),
    "resource": _name,
    "timeout": _seconds(),
    "retries": _count(0),
    "probe": _argv,
    "cancel": _argv,
    "grace": _seconds(0.0),
}
_MCP: dict[str, Reader] = {"command": _name, "args": _texts}


def _read(path: str, content: bytes) -> Config:
    import hashlib
    import tomllib

    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    top = _values(path, document, _TOP)
    for key, make in (("agents", _agent), ("tools", _tool), ("mcp", _mcp)):
        top[key] = {name: make(f"{path}: [{key}.{name}]", name, table) for name, table in top.get(key, {}).items()}
    config = Config(path=path, sha256=hashlib.sha256(content).hexdigest(), **top)
    _check_names(config)
    return config


def _values(place: str, content: Any, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The keys of one table with what they mean; `place` names the file and the table in errors."""
    if not isinstance(content, dict):
        raise ConfigError(f"{place} must be a table, not {reprlib.repr(content)}")
    values = {}
    for key, value in content.items():
        if key not in readers:
            hint = nearest(key, readers) or f"; it may have: {', '.join(readers)}"
            raise ConfigError(f"{place} has no key {key!r}{hint}")
        try:
            values[key] = readers[key](value)
        except _Wrong as expected:
            raise ConfigError(f"{place} {key} must be {expected}, not {reprlib.repr(value)}") from None
    return values


def _agent(place: str, name: str, content: Any) -> AgentConfig:
    values = _values(place, content, _ANY_KIND | _LOOP | _OUTSIDE)
    kind = values.get("kind", "loop")
    needed, idle = ("model", _OUTSIDE) if kind == "loop" else ("command", _LOOP)
    for key in values:
        if key in idle:
            raise ConfigError(f'{place} is of kind "{kind}", for which {key} has no effect')
    if needed not in values:
        raise ConfigError(f'{place} is of kind "{kind}" and needs {needed}')
    if "api_key_env" in values and "api_key_command" in values:
        raise ConfigError(f"{place} has both api_key_env and api_key_command; one of them is enough")
    return AgentConfig(name, **values)


def _tool(place: str, name: str, content: Any) -> ToolConfig:
    values = _values(place, content, _TOOL)
    if not _TOOL_NAME.fullmatch(name):
        raise ConfigError(f"{place} is no name for a tool: letters, digits, '_' and '-', at most 64")
    if "argv" not in values:
        raise ConfigError(f"{place} needs argv, the command that it runs")
    approve = "auto" if values.get("effect") == "read" else "ask"
    return ToolConfig(name, **{"approve": approve} | values)


def _mcp(place: str, name: str, content: Any) -> McpConfig:
    values = _values(place, content, _MCP)
    if "command" not in values:
        raise ConfigError(f"{place} needs command, the program that it runs")
    return McpConfig(name, **values)


def _check_names(config: Config) -> None:
    known = [*config.tools, *(MCP_PREFIX + name for name in config.mcp)]
    for agent in config.agents.values():
        place = f"{config.path}: [agents.{agent.name}] tools names"
        for tool in agent.tools:
            if tool not in known:
                raise ConfigError(f"{place} {tool!r}, which is not configured{nearest(tool, known)}")
            if agent.tools.count(tool) > 1:
                raise ConfigError(f"{place} {tool!r} twice")
    default = config.default_agent
    if default and default not in config.agents and not _inline_agent(default):
        hint = nearest(default, config.agents)
        raise ConfigError(f"{config.path}: default_agent is {default!r}, which is not configured{hint}")
