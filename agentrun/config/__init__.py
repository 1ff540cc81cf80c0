"""What the configuration file says: agents, models, tools and budgets, as frozen values.

A `Config` is checked when it is loaded: an unknown key, a wrong type, or a name that nothing stands for is
an error that names the file, the table and the key, before a run depends on it. Whether this version can also
drive what is configured is decided where an agent is built from it.

    values      what is configured, as the rest of the program has it
    durations   `10m` and its like
    readers     what a key may hold
    keys        which keys each table may have
    reading     from the file to the values
"""

from agentrun.config.durations import LONGEST_DURATION_SECONDS, parse_duration
from agentrun.config.names import nearest
from agentrun.config.reading import load_config
from agentrun.config.values import (
    ANY_ARGUMENTS,
    DELEGATE,
    GRACE_SECONDS,
    KILL_TIMEOUT_SECONDS,
    LEASE_SECONDS,
    MAX_ATTEMPTS,
    MAX_TOOL_CALLS,
    MAX_TURNS,
    MCP_PREFIX,
    USUAL_PATIENCE,
    AgentConfig,
    Config,
    McpConfig,
    Patience,
    ToolConfig,
)

__all__ = [
    "ANY_ARGUMENTS",
    "DELEGATE",
    "GRACE_SECONDS",
    "KILL_TIMEOUT_SECONDS",
    "LEASE_SECONDS",
    "LONGEST_DURATION_SECONDS",
    "MAX_ATTEMPTS",
    "MAX_TOOL_CALLS",
    "MAX_TURNS",
    "MCP_PREFIX",
    "USUAL_PATIENCE",
    "AgentConfig",
    "Config",
    "McpConfig",
    "Patience",
    "ToolConfig",
    "load_config",
    "nearest",
    "parse_duration",
]
