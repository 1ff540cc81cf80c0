"""The two clocks: wall time, which is only shown, and boot time, which leases are measured by.

Order never comes from either: it is always by `seq`.
"""

from __future__ import annotations

import time

# Counts suspended time on Linux (clock_gettime(2)); elsewhere the monotonic clock is the nearest.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The end of the year 9999, the last second that RFC 3339 can write: a limit that is further away is none.
_LAST = 253402300799.0


def timestamp(seconds: float | None = None) -> str:
    """`seconds` since the epoch (default: now) as RFC 3339 UTC with milliseconds, `2026-01-02T03:04:05.678Z`."""
    milliseconds = int(min(wall_seconds() if seconds is None else seconds, _LAST) * 1000)
    whole, rest = divmod(milliseconds, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:03d}Z"


def wall_seconds() -> float:
    """Seconds since the epoch, for display and for deadlines that a person set."""
    return time.time()


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a stored timestamp. Raises ValueError for anything else."""
    from datetime import UTC, datetime  # not needed by a command that shows no ages

    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def boot_seconds() -> float:
    """Seconds since boot, sleep included: a laptop lid that closes counts against a lease."""
    return time.clock_gettime(_BOOT_CLOCK)


def awake_seconds() -> float:
    """Seconds on a clock that stands still while the machine sleeps (CLOCK_MONOTONIC on Linux)."""
    return time.monotonic()
