"""The two clocks: wall time, which is only shown, and boot time, which leases are measured by.

Order never comes from either: it is always by `seq`.
"""

from __future__ import annotations

import time

# Counts suspended time on Linux (clock_gettime(2)); elsewhere the monotonic clock is the nearest.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The end of the year 9999, the last second that RFC 3339 can write: a limit that is further away is none.
_LAST = 253402300799.0
# The second that was written last, and how: many records are written in the same one. One tuple, so that threads see
# both or neither.
_last_second = (0, "1970-01-01T00:00:00.")
# The same of the second that was read last: what is read stands in the order in which it happened.
_last_read = _last_second


def timestamp(seconds: float | None = None) -> str:
    """`seconds` since the epoch (default: now) as RFC 3339 UTC with milliseconds, `2026-01-02T03:04:05.678Z`."""
    global _last_second
    seconds = time.time() if seconds is None else seconds
    milliseconds = int((seconds if seconds < _LAST else _LAST) * 1000)
    whole = milliseconds // 1000
    known, text = _last_second
    if known != whole:
        year, month, day, hour, minute, second, *_ = time.gmtime(whole)
        text = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}."
        _last_second = whole, text
    # Three digits, without looking up how they are to be written.
    return text + str(milliseconds - whole * 1000 + 1000)[1:] + "Z"


def wall_seconds() -> float:
    """Seconds since the epoch, for display and for deadlines that a person set."""
    return time.time()


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a stored timestamp. Raises ValueError for anything else."""
    own = _seconds_of_own(text)
    if own is not None:
        return own
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds_of_own(text: str) -> float | None:
    """What `timestamp` wrote, read without loading `datetime`, which costs 2 ms; None for any other text."""
    if not (len(text) == 24 and text.isascii() and text[20:23].isdigit() and (text[19], text[23]) == (".", "Z")):
        return None
    global _last_read
    known, written = _last_read
    if text[:20] == written:
        return (known * 1000 + int(text[20:23])) / 1000
    try:
        year, month, day, hour, minute, second = (int(text[at : at + 2]) for at in (2, 5, 8, 11, 14, 17))
        year += int(text[:2]) * 100
    except ValueError:
        return None
    # Days since 1970 by the proleptic Gregorian calendar, in years that begin in March: the leap day is their last.
    since_march = (month + 9) % 12
    year -= month < 3
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * since_march + 2) // 5 + day - 719469
    whole = ((days * 24 + hour) * 60 + minute) * 60 + second
    # A month 13 and its like are written differently.
    if not (0 <= whole <= _LAST and timestamp(whole)[:19] == text[:19]):
        return None
    _last_read = whole, text[:20]
    return (whole * 1000 + int(text[20:23])) / 1000


def boot_seconds() -> float:
    """Seconds since boot, sleep included: a laptop lid that closes counts against a lease."""
    return time.clock_gettime(_BOOT_CLOCK)


def awake_seconds() -> float:
    """Seconds on a clock that stands still while the machine sleeps (CLOCK_MONOTONIC on Linux)."""
    return time.monotonic()
