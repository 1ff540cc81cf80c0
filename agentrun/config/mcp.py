"""Servers of tools: from a table of the file, or from the JSON file that other programs use for them."""

from __future__ import annotations

from agentrun.config.files import file_bytes
from agentrun.config.values import McpConfig
from agentrun.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OF_A_PROGRAM = ("args", "env", "cwd", "grace", "kill_timeout")
_OF_A_URL = ("headers",)
# What both kinds of file say in the same words. The other programs' own keys are theirs.
_SHARED = ("command", "args", "env", "cwd", "url", "headers")


def mcp_server(place: str, values: dict[str, Any], name: str) -> McpConfig:
    """The server `name` that the checked `values` describe. Raises ConfigError if they do not fit together."""
    if ("command" in values) == ("url" in values):
        raise ConfigError(f"{place} needs either command, the program that it runs, or url")
    kind, idle = ("url", _OF_A_PROGRAM) if "url" in values else ("command", _OF_A_URL)
    for key in values:
        if key in idle:
            raise ConfigError(f"{place} has {kind}, for which {key} has no effect")
    return McpConfig(name, **values)


def json_servers(path: str) -> dict[str, dict[str, Any]]:
    """The tables of the `mcpServers` in a JSON file, without those that are disabled. Raises ConfigError."""
    import json

    try:
        servers = json.loads(file_bytes(path))["mcpServers"]
        if not all(isinstance(each, dict) for each in servers.values()):
            raise TypeError
    except OSError as error:
        raise ConfigError(f"the file of mcp_servers, {path}, cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file of mcp_servers, {path}, is not JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f'{path} has no "mcpServers" with a table for each server') from error
    return {name: _shared(table) for name, table in servers.items() if table.get("disabled") is not True}


def _shared(table: dict[str, Any]) -> dict[str, Any]:
    return {key: table[key] for key in _SHARED if table.get(key) is not None}
