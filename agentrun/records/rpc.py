"""Messages of JSON-RPC 2.0, as programs and editors send them: one JSON object a line (https://www.jsonrpc.org)."""

from __future__ import annotations

from typing import Any

from agentrun.records.jsontext import line_of, value_of

# Of an error without a code of its own.
_INTERNAL_ERROR = -32603


def message_of(line: bytes) -> dict[str, Any] | None:
    """The message in a line; None if it is none. The library takes each for what it should be, and ends over others."""
    value = _object_in(line)
    return value if value is not None and _is_message(value) else None


def answer_of(line: bytes) -> dict[str, Any] | None:
    """As `message_of`, where an error of any form is one: whoever waits for that answer would wait for ever."""
    value = _object_in(line)
    error = value.get("error") if value is not None else None
    if value is not None and not isinstance(error, dict | None):
        value["error"] = {"code": _INTERNAL_ERROR, "message": error if isinstance(error, str) else line_of(error)}
    return value if value is not None and _is_message(value) else None


def _object_in(line: bytes) -> dict[str, Any] | None:
    try:
        value = value_of(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_message(value: dict[str, Any]) -> bool:
    has_id = isinstance(value.get("id"), str | int | float | None)
    has_error = isinstance(value.get("error"), dict | None)
    return isinstance(value.get("method"), str | None) and has_id and has_error
