"""Renews the lease from a thread of its own, so that no work of the agent can make the executor look dead."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from agentrun.errors import AgentrunError, StorageFailed
from agentrun.records.lease import Lease
from agentrun.store.redo import recording
from agentrun.store.sessions import SessionDir

# Two renewals may fail or come late before the lease is over.
RENEWALS_PER_LEASE = 3
# Seconds between two renewals of an executor that has not got its lock yet: the lease alone shows that it is alive, and
# tells as soon as the lock does.
WITHOUT_LOCK = 0.5


def _nothing() -> None:
    return None


def _has_lock() -> bool:
    return True


class Heartbeat:
    """Renews the lease of `run_id` until it is stopped, or fenced out: the executor sees that at its next write.

    `session` is a handle of the thread's own, since handles must not be shared by threads that write.
    """

    def __init__(self, session: SessionDir, run_id: str, seconds: float) -> None:
        self._session = session
        self._run_dir = session.run(run_id)
        self._lease: Lease | None = None
        self._seconds = seconds
        self._spent: Callable[[], float | None] = _nothing
        self._has_lock: Callable[[], bool] = _has_lock
        self._pause = seconds / RENEWALS_PER_LEASE
        self._is_over = False
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="agentrun-heartbeat", daemon=True)

    def start(self) -> None:
        """Takes the thread; it renews nothing yet.

        Before the claim: a machine that has no thread left uses up no attempt of the run. Raises StorageFailed.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StorageFailed(
                f"no thread can be started for {self._run_dir.name}: {os.strerror(errno.EAGAIN)} (EAGAIN)",
                hint="let it have more processes and threads (ulimit -u)",
            ) from error

    def renew(
        self,
        lease: Lease,
        spent: Callable[[], float | None] = _nothing,
        has_lock: Callable[[], bool] = _has_lock,
    ) -> None:
        """From now on `lease` is renewed.

        `spent` says for how many seconds this stretch has been executing beyond what it recorded (None: it does not
        count): it goes into the lease, so that an executor that is killed takes little of it along. `has_lock` says
        whether this executor has its lock, which one that was fenced out may have.
        """
        self._spent, self._has_lock = spent, has_lock
        self._lease = lease
        if not has_lock():
            self._called.set()

    def stop(self) -> None:
        """Ends the renewing, and returns when no renewal is under way any more."""
        self._is_over = True
        self._called.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        usual = self._pause
        while True:
            self._called.wait(self._pause)
            if self._is_over:
                return
            self._called.clear()
            if self._lease is None:
                continue
            has_lock = self._has_lock()
            self._pause = usual if has_lock else min(WITHOUT_LOCK, usual)
            try:
                if not self._renew(self._lease, has_lock):
                    return
            except AgentrunError:
                # Fenced out, or the disk refuses: the lease lapses, and the executor's next write says why.
                continue

    def _renew(self, lease: Lease, has_lock: bool) -> bool:
        """Whether it was renewed, and not let go of: the run is over then, or waits on disk."""
        with recording(self._session) as writer:
            run = self._run_dir.check(lease, writer)
            if run.lease_owner is None:
                return False
            spent = run.usage["executingMs"] + int((self._spent() or 0.0) * 1000)
            locked = has_lock and run.fenced is not None
            self._lease = self._run_dir.renew(lease, writer, self._seconds, spent, locked=locked)
            return True
