"""Times for people: how long something took, how long ago it was. Never negative, whatever the clocks did."""

from __future__ import annotations

from agentrun.clock import seconds_of

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """`0.3s`, `41s`, `2m 03s`, `1h 05m`, `3d 4h`."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"


def running_time(seconds: float) -> str:
    """`duration` in whole seconds, for what is still counting."""
    whole = int(max(seconds, 0.0))
    return f"{whole}s" if whole < _MINUTE else duration(whole)


def age(seconds: float) -> str:
    """One number and its unit: `now`, `3s`, `4m`, `2h`, `5d`."""
    whole = int(max(seconds, 0.0))
    if whole < 1:
        return "now"
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if whole >= unit:
            return f"{whole // unit}{letter}"
    return f"{whole}s"


def between(start: str | None, end: str | None) -> float | None:
    """Seconds from one stored time to another; None if either is missing or is no time."""
    begun, ended = moment(start), moment(end)
    return None if begun is None or ended is None else max(ended - begun, 0.0)


def moment(at: str | None) -> float | None:
    """A stored time in seconds since the epoch; None if it is missing or damaged, since it is only shown."""
    try:
        return seconds_of(at) if at else None
    except ValueError:
        return None
