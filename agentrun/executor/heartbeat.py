"""Renews the lease from a thread of its own, so that no work of the agent can make the executor look dead."""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentrun.errors import AgentrunError
from agentrun.records.lease import Lease
from agentrun.store.redo import recording
from agentrun.store.sessions import SessionDir

# Two renewals may fail or come late before the lease is over.
RENEWALS_PER_LEASE = 3


class Heartbeat:
    """Renews `lease` of `run_id` until it is stopped, or fenced out: the executor sees that at its next write.

    `session` is a handle of the thread's own, since handles must not be shared by threads that write. `spent` says for
    how many seconds this stretch has been executing beyond what it recorded (None: it does not count): it goes into
    the lease, so that an executor that is killed takes little of it along.
    """

    def __init__(
        self, session: SessionDir, run_id: str, lease: Lease, seconds: float, spent: Callable[[], float | None]
    ) -> None:
        self._session = session
        self._run_dir = session.run(run_id)
        self._lease = lease
        self._seconds = seconds
        self._spent = spent
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="agentrun-heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the renewing, and returns when no renewal is under way any more."""
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds / RENEWALS_PER_LEASE):
            try:
                with recording(self._session) as writer:
                    run = self._run_dir.check(self._lease, writer)
                    if run.lease_owner is None:
                        return  # let go of: the run is over, or waits on disk
                    spent = run.usage["executingMs"] + int((self._spent() or 0.0) * 1000)
                    self._lease = self._run_dir.renew(self._lease, writer, self._seconds, spent)
            except AgentrunError:
                # Fenced out, or the disk refuses: the lease lapses, and the executor's next write says why.
                continue
