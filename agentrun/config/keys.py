"""Which keys each table of the file may have, and what each may hold."""

from __future__ import annotations

from agentrun.config import readers
from agentrun.config.readers import Reader

# A renewal is a write with an fsync; a shorter lease would be lost to a slow disk.
SHORTEST_LEASE_SECONDS = 0.1
# A process that was killed may take a moment to go; and one that never goes must not keep whoever winds the run down
# longer than its lease is.
SHORTEST_KILL_SECONDS, LONGEST_KILL_SECONDS = 0.1, 30.0

ENDING: dict[str, Reader] = {
    "grace": readers.seconds(0.0),
    "kill_timeout": readers.seconds(SHORTEST_KILL_SECONDS, LONGEST_KILL_SECONDS),
}
TOP: dict[str, Reader] = {
    "default_agent": readers.name,
    "lease": readers.seconds(SHORTEST_LEASE_SECONDS),
    "max_attempts": readers.count(1),
    "max_depth": readers.count(0),
    **ENDING,
    "agents": readers.table,
    "tools": readers.table,
    "mcp": readers.table,
    "mcp_servers": readers.name,
}
ANY_KIND: dict[str, Reader] = {
    "kind": readers.name,
    "settings": readers.schema,
    "checks": readers.argvs,
    "timeout": readers.seconds(),
    "answer_timeout": readers.seconds(),
}
# What only our own loop can keep to: an agent from outside has its own model, tools and counts.
LOOP: dict[str, Reader] = {
    "model": readers.name,
    "base_url": readers.address,
    "api_key_env": readers.name,
    "api_key_command": readers.argv,
    "temperature": readers.number(0.0, 2.0),
    "max_output_tokens": readers.count(1),
    "request_timeout": readers.seconds(),
    "finish_reason": readers.one_of("required", "optional"),
    "may_ask": readers.yes_or_no,
    "actions": readers.one_of("native", "structured"),
    "system": readers.text,
    "tools": readers.texts,
    "max_turns": readers.count(1),
    "max_tool_calls": readers.count(0),
    "max_tokens": readers.count(1),
    "compact_above_tokens": readers.count(1),
}
OUTSIDE: dict[str, Reader] = {"command": readers.argv}
COMMAND: dict[str, Reader] = {
    "resume": readers.argv,
    "output": readers.one_of("auto", "text", "json-lines"),
    "effect": readers.one_of("read", "write"),
}
TOOL: dict[str, Reader] = {
    "kind": readers.name,
    "settings": readers.schema,
    "argv": readers.argv,
    "description": readers.text,
    "parameters": readers.schema,
    "effect": readers.one_of("read", "write"),
    "approve": readers.one_of("auto", "ask", "deny"),
    "resource": readers.name,
    "timeout": readers.seconds(),
    "retries": readers.count(0),
    "probe": readers.argv,
    "cancel": readers.argv,
    **ENDING,
}
MCP: dict[str, Reader] = {
    "command": readers.name,
    "args": readers.texts,
    "env": readers.variables,
    "cwd": readers.name,
    "url": readers.name,
    "headers": readers.variables,
    "tools": readers.texts,
    "effect": readers.one_of("read", "write"),
    "read": readers.texts,
    "write": readers.texts,
    "approve": readers.one_of("auto", "ask", "deny"),
    "timeout": readers.seconds(),
    **ENDING,
}
