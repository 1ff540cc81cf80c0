"""How long an agent waits before it tries again what has failed for now."""

from __future__ import annotations

# Seconds before the second attempt, doubled before each further one. What fails for now (a warehouse that is
# still loading, a full queue) is often over in a moment, and a run should not seem to hang when it is not.
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

# A server that wants to be left alone for longer is not waited for: a person should hear of it first.
LONGEST_PATIENCE_SECONDS = 600.0


def pause_after(attempt: int, asked: float | None = None) -> float:
    """Seconds to wait after the `attempt`-th attempt has failed for now: never less than a server has `asked` for.

    Up to half as long again by chance, at most 5 s more: runs that failed at the same moment, since what they all
    need was gone, must not come back at the same moment.
    """
    import random

    doubled: float = min(FIRST_PAUSE_SECONDS * 2 ** min(attempt - 1, 16), LONGEST_PAUSE_SECONDS)
    least = max(doubled, asked or 0.0)
    return least + random.uniform(0.0, min(least / 2, LONGEST_PAUSE_SECONDS))


def too_long(asked: float | None, time_left: float | None) -> str | None:
    """Why a pause that a server has `asked` for is not made; None if it is. Seconds; `time_left` None is no limit."""
    if asked is None:
        return None
    if asked > LONGEST_PATIENCE_SECONDS:
        return f"the server asks to wait {asked:.0f} s, and more than {LONGEST_PATIENCE_SECONDS:.0f} s is not waited"
    if time_left is not None and asked >= time_left:
        return f"the server asks to wait {asked:.0f} s, and the run has {max(time_left, 0.0):.0f} s left"
    return None
