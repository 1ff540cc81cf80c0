"""Durations as they are written: `500ms`, `30s`, `1h30m`."""

from __future__ import annotations

import re

from agentrun.errors import UsageError

# Deadlines are written as dates; one that lies further away is a typing error.
LONGEST_DURATION_SECONDS = 3650 * 86400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Compiled when the first one is read: most configurations hold none.
_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+"
_DURATION_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `500ms`, `30s`, `10m`, `2h`, `7d` or `1h30m`. Raises UsageError."""
    if not re.fullmatch(_DURATION, text):
        hint = f"seconds are written {text}s, minutes {text}m" if text.isascii() and text.isdigit() else None
        raise UsageError(f"{text[:80]!r} is not a duration; write one like 500ms, 30s, 10m, 2h or 7d", hint=hint)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_DURATION_PART, text))
    if seconds > LONGEST_DURATION_SECONDS:
        raise UsageError(f"{text[:80]} is too long for a duration; the longest is 3650d")
    return seconds


def written(seconds: float) -> str:
    """`seconds` as a duration is written in a file, in the largest unit that needs no fraction."""
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(seconds, _UNITS[unit])
        if number and not rest:
            return f"{int(number)}{unit}"
    return f"{round(seconds * 1000)}ms"
