"""When a lease, the time for executing or the time for an answer is over."""

from __future__ import annotations

from agentrun import clock
from agentrun.records.run import Run
from agentrun.store.identity import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.lease import Lease, Owner

# Seconds by which a stored lease may seem longer than it was taken for: its fields are rounded to milliseconds.
_ROUNDING = 1.0


def new_lease(generation: int, owner: Owner, seconds: float, executing_ms: int = 0) -> Lease:
    """A lease of `owner` that runs for `seconds` from now; its run has been executing for `executing_ms`."""
    from agentrun.records.lease import Lease

    now = clock.wall_seconds()
    ends = clock.boot_seconds() + seconds
    return Lease(generation, owner, clock.timestamp(now), clock.timestamp(now + seconds), ends, executing_ms)


def is_expired(lease: Lease) -> bool:
    """Whether the lease has run out: on the clock of this boot, where it was taken by that.

    Where it was not, in another machine or in a container whose clock starts elsewhere, only wall time is left. That
    may be wrong, and decides nothing: whoever would take the run over watches for renewals with a clock of its own.
    """
    left = lease.expires_boot_seconds - clock.boot_seconds()
    if lease.owner.boot_id == boot_id() and left <= lease_seconds(lease) + _ROUNDING:
        return left < 0
    try:
        return clock.seconds_of(lease.expires_at) < clock.wall_seconds()
    except ValueError:
        return True


def lease_seconds(lease: Lease) -> float:
    """How long the lease was taken for. Both times were read from one look at the clock, whatever that said."""
    try:
        return max(clock.seconds_of(lease.expires_at) - clock.seconds_of(lease.renewed_at), 0.0)
    except ValueError:
        return 0.0


def remaining_deadline(run: Run, timeout: float | None) -> str | None:
    """When the executing time of `run` will be used up if it goes on from now; None without a limit."""
    if timeout is None:
        return None
    return clock.timestamp(clock.wall_seconds() + timeout - run.usage["executingMs"] / 1000)


def is_overdue(run: Run) -> bool:
    """Whether a deadline of an open run has passed."""
    deadline = run.timeout_at or (run.waiting_for or {}).get("deadline")
    try:
        return bool(deadline) and not run.is_over and clock.seconds_of(str(deadline)) < clock.wall_seconds()
    except ValueError:
        return False
