"""Telling an executor that is frozen from one that is late, and ending it.

A lease that has run out proves nothing: a laptop slept, a disk was slow. Who would take its run over watches it for one
more lease length of time in which this process was awake; a renewal in between begins everything anew.
"""

from __future__ import annotations

import time

from agentrun import clock
from agentrun.commands.place import Place
from agentrun.errors import HeldBack, TimeRanOut
from agentrun.named import NamedTuple
from agentrun.records.lease import Lease
from agentrun.store.deadlines import lease_seconds
from agentrun.store.holders import Patience
from agentrun.store.identity import number_here
from agentrun.store.locks import LOCK_PATIENCE, is_executor_alive, lock_holder
from agentrun.store.runs import RunDir
from agentrun.store.watch import Watch

_PAUSE = 0.02


class _Seen(NamedTuple):
    lease: Lease
    since: float


class Vigil:
    """What this process has seen itself of leases that had run out."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def seconds_left(self, run_dir: RunDir) -> float:
        """For how long the run's lease has to stay as it is until its executor counts as frozen; 0 then."""
        lease = run_dir.lease()
        if lease is None:
            return 0.0
        seen = self._seen.get(run_dir.name)
        if seen is None or seen.lease != lease:
            seen = self._seen[run_dir.name] = _Seen(lease, clock.awake_seconds())
        return max(lease_seconds(lease) - (clock.awake_seconds() - seen.since), 0.0)

    def keep(self, run_dir: RunDir, until: float | None = None) -> bool:
        """Watches a frozen executor until it counts as such; False if it comes to life, or dies, before.

        A renewal is life, whatever the clock says about its lease: in a container that clock may be another one.
        Raises TimeRanOut if it has to be watched for longer than `until` (time.monotonic()).
        """
        watch, first = Watch(run_dir.directory), run_dir.lease()
        try:
            while run_dir.executor_of(run_dir.load()) == "frozen" and run_dir.lease() == first:
                left = self.seconds_left(run_dir)
                if left <= 0:
                    return True
                if until is not None and time.monotonic() >= until:
                    raise _ran_out(run_dir)
                watch.wait(left if until is None else min(left, max(until - time.monotonic(), 0.0)))
        finally:
            watch.close()
        return False


def _ran_out(run_dir: RunDir) -> TimeRanOut:
    return TimeRanOut(
        f"the time ran out: the executor of {run_dir.name} does not respond, and has to be watched for longer",
        hint=f"give it more time than its lease, or none: agentrun cancel {run_dir.name} --wait",
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )


def end_frozen(place: Place, run_dir: RunDir, until: float | None = None) -> Lease | None:
    """Ends the executor whose lease `run_dir` has, with what it has begun, and returns when its locks are free.

    One that is not to be found here, being of another machine, boot or container, cannot be ended: its lease comes
    back then, for whoever fences it out. One that waits for the session's lock, which some other process has, is left
    alone. Raises HeldBack if it is there and does not go, LockHeld if the other process does not let go, TimeRanOut if
    that is not waited for for so long, `until` being of time.monotonic().
    """
    from agentrun.commands.leftovers import end_executor

    lease = run_dir.lease()
    if lease is None:
        return None
    owner, pid = lease.owner, number_here(lease.owner)
    if pid is None:
        return lease
    if _was_kept_waiting(run_dir, pid, until):
        return None
    ended = end_executor(place, run_dir, pid, owner)
    if ended and run_dir.load().fenced is not None:
        return lease  # the lock is with one that was fenced out before, elsewhere
    if not ended or is_executor_alive(run_dir.directory):
        raise HeldBack(
            f"{run_dir.name} is left as it is: its executor {owner} cannot be ended",
            hint=f"end it by hand: kill -9 {pid}, then: agentrun recover",
            session_id=run_dir.session_id,
            run_id=run_dir.run_id,
        )
    return None


def held_elsewhere(run_dir: RunDir, lease: Lease) -> HeldBack:
    """The executor of `lease` stands still with the session's lock where it cannot be ended from here.

    Nothing can be written as long as it has that, so it cannot be fenced out either.
    """
    return HeldBack(
        f"{run_dir.name} is left as it is: its executor {lease.owner} does not respond, has the session's lock, "
        "and cannot be ended from here",
        hint=f"end it where it runs, on {lease.owner.host}, or let it go on there; then: agentrun recover",
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )


def _was_kept_waiting(run_dir: RunDir, executor: int, until: float | None) -> bool:
    """Whether the executor could not renew its lease because another process had the session's lock for long.

    That one has let go now, so the executor may renew. Raises LockHeld if it does not.
    """
    directory = run_dir.session_directory
    keeper, since = lock_holder(directory), clock.awake_seconds()
    if keeper in (None, executor):
        return False
    patience = Patience(run_dir.session_id, directory, until)
    due = since + LOCK_PATIENCE
    while lock_holder(directory) == keeper:
        patience.check_time()
        if clock.awake_seconds() >= due:
            patience.look()
            due += LOCK_PATIENCE
        time.sleep(_PAUSE)
    return clock.awake_seconds() - since >= LOCK_PATIENCE
