"""From the file to the values: what is wrong is said with the file, the table and the key."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Collection, Mapping

from agentrun.config import keys
from agentrun.config.files import file_bytes
from agentrun.config.names import nearest
from agentrun.config.readers import Reader, Wrong
from agentrun.config.values import DELEGATE, MCP_PREFIX, AgentConfig, Config, McpConfig, ToolConfig, inline_agent
from agentrun.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The APIs of the common models take no other names for tools.
_OF_TOOL_NAMES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_TOOL_NAME = 64

# What has no effect for a kind of its own: a plug-in has `settings`, and nothing of what ours are made from.
_IDLE_OF_AGENTS: dict[str, Collection[str]] = {
    "loop": keys.OUTSIDE | keys.COMMAND,
    "acp": keys.LOOP | keys.COMMAND | {"settings": None},
    "command": keys.LOOP | {"settings": None},
}
_NEEDED_BY_AGENTS = {"loop": "model", "acp": "command", "command": "command"}
_IDLE_OF_TOOLS: dict[str, Collection[str]] = {"command": {"settings"}}
_COMMAND_TOOL = {"argv", "probe", "cancel", *keys.ENDING}


def load_config(path: str | None, *, optional: bool = False) -> Config:
    """The configuration in the TOML file `path`; None, or an `optional` file that is missing: the defaults.

    Raises ConfigError for a file that cannot be read or does not say what it should.
    """
    if path is None:
        return Config()
    try:
        content = file_bytes(path)
    except FileNotFoundError:
        if optional:
            return Config()
        raise ConfigError(f"there is no configuration file {path}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"the configuration file {path!r} cannot be read: {reason}") from error
    return _read(os.path.abspath(path), content)


def _sha256(content: bytes) -> str:
    """The hash of a small file, without loading OpenSSL as `hashlib` does: that takes longer than all else in here."""
    # No public names: Python 3.12 has another one than 3.11, and an interpreter may be without either.
    for module in ("_sha2", "_sha256", "hashlib"):
        try:
            return str(__import__(module).sha256(content).hexdigest())
        except (ImportError, AttributeError):
            continue
    raise ConfigError("this Python has no SHA-256")


def _read(path: str, content: bytes) -> Config:
    import tomllib

    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    top = _values(path, document, keys.TOP)
    for key, make in (("agents", _agent), ("tools", _tool), ("mcp", _mcp)):
        top[key] = {name: make(f"{path}: [{key}.{name}]", name, table) for name, table in top.get(key, {}).items()}
    top["mcp"] |= _mcp_of_others(path, top)
    _end_as_said_for_all(document, top)
    config = Config(path=path, sha256=_sha256(content), **top)
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
        except Wrong as expected:
            from agentrun.config.secrets import redacted

            shown = reprlib.repr(redacted(key, value))
            raise ConfigError(f"{place} {key} must be {expected}, not {shown}") from None
    return values


def _agent(place: str, name: str, content: Any) -> AgentConfig:
    values = _values(place, content, keys.ANY_KIND | keys.LOOP | keys.OUTSIDE | keys.COMMAND)
    kind = values.get("kind", "loop")
    idle = _IDLE_OF_AGENTS.get(kind, keys.LOOP | keys.OUTSIDE | keys.COMMAND)
    _check_kind(place, kind, values, idle, _IDLE_OF_AGENTS)
    needed = _NEEDED_BY_AGENTS.get(kind)
    if needed and needed not in values:
        raise ConfigError(f'{place} is of kind "{kind}" and needs {needed}')
    if "api_key_env" in values and "api_key_command" in values:
        raise ConfigError(f"{place} has both api_key_env and api_key_command; one of them is enough")
    return AgentConfig(name, **values)


def _check_kind(
    place: str, kind: str, values: Mapping[str, Any], idle: Collection[str], built_in: Collection[str]
) -> None:
    for key in values:
        if key in idle:
            whose, hint = ("", "") if kind in built_in else (", a plug-in's", nearest(kind, built_in))
            raise ConfigError(f'{place} is of kind "{kind}"{whose}, for which {key} has no effect{hint}')


def _end_as_said_for_all(document: Mapping[str, Any], top: dict[str, Any]) -> None:
    """Gives what the top of the file says about ending processes to each tool and server that says nothing itself."""
    said = {key: top[key] for key in keys.ENDING if key in top}
    for table in ("tools", "mcp"):
        for name, made in top[table].items():
            own = document.get(table, {}).get(name, {})
            top[table][name] = made._replace(**{key: value for key, value in said.items() if key not in own})


def _tool(place: str, name: str, content: Any) -> ToolConfig:
    values = _values(place, content, keys.TOOL)
    if not (_OF_TOOL_NAMES.issuperset(name) and 0 < len(name) <= _LONGEST_TOOL_NAME):
        raise ConfigError(f"{place} is no name for a tool: letters, digits, '_' and '-', at most {_LONGEST_TOOL_NAME}")
    if name == DELEGATE:
        raise ConfigError(f"{place}: {DELEGATE} is a tool that agentrun brings along; name it in an agent's tools")
    kind = values.get("kind", "command")
    _check_kind(place, kind, values, _IDLE_OF_TOOLS.get(kind, _COMMAND_TOOL), _IDLE_OF_TOOLS)
    if kind == "command" and "argv" not in values:
        raise ConfigError(f"{place} needs argv, the command that it runs")
    approve = "auto" if values.get("effect") == "read" else "ask"
    return ToolConfig(name, **{"approve": approve} | values)


def _mcp_of_others(path: str, top: Mapping[str, Any]) -> dict[str, McpConfig]:
    """The servers of the JSON file that `mcp_servers` names."""
    if "mcp_servers" not in top:
        return {}
    from agentrun.config.mcp import json_servers

    file = os.path.join(os.path.dirname(path), top["mcp_servers"])
    servers = {name: _mcp(f"{file}: {name}", name, table) for name, table in json_servers(file).items()}
    for name in servers.keys() & top["mcp"].keys():
        raise ConfigError(f"{path}: [mcp.{name}] is a server of {file} as well")
    return servers


def _mcp(place: str, name: str, content: Any) -> McpConfig:
    from agentrun.config.mcp import mcp_server

    return mcp_server(place, _values(place, content, keys.MCP), name)


def _check_names(config: Config) -> None:
    known = [*config.tools, DELEGATE, *(MCP_PREFIX + name for name in config.mcp)]
    for agent in config.agents.values():
        place = f"{config.path}: [agents.{agent.name}] tools names"
        for tool in agent.tools:
            if tool not in known:
                raise ConfigError(f"{place} {tool!r}, which is not configured{nearest(tool, known)}")
            if agent.tools.count(tool) > 1:
                raise ConfigError(f"{place} {tool!r} twice")
    default = config.default_agent
    if default and default not in config.agents and not inline_agent(default):
        hint = nearest(default, config.agents)
        raise ConfigError(f"{config.path}: default_agent is {default!r}, which is not configured{hint}")
