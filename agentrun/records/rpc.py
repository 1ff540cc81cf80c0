"""Messages of JSON-RPC 2.0, as programs and editors send them: one JSON object a line (https://www.jsonrpc.org)."""

from __future__ import annotations

from typing import Any

from agentrun.records.jsontext import value_of


def message_of(line: bytes) -> dict[str, Any] | None:
    """The message in a line; None if it is none. The library takes each for what it should be, and ends over others."""
    try:
        value = value_of(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("method"), str | None):
        return None
    has_id = isinstance(value.get("id"), str | int | float | None)
    has_error = isinstance(value.get("error"), dict | None)
    return value if has_id and has_error else None
