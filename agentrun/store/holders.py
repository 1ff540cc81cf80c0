"""Who keeps a session's lock from everybody else, and how long it is waited for.

Nobody who is well holds it for more than a few writes. A process that was suspended over them, or `flock DIRECTORY` in
some shell, may hold it for ever; then a command says so instead of waiting with it. An executor waits all the same: its
run is not lost over that.
"""

from __future__ import annotations

import time

from agentrun.errors import LockHeld, TimeRanOut
from agentrun.store.disk import Directory
from agentrun.store.locks import LOCK_PATIENCE, lock_holder

# Looks, `LOCK_PATIENCE` seconds apart, that find the same process with the lock until it is given up. A crowd on a slow
# disk takes turns, so it is never the same one.
SAME_HOLDER_LOOKS = 4
# As many where it cannot be seen whether it is the same: it is of another machine, or there is no /proc.
UNSEEN_HOLDER_LOOKS = 30


def looks_until(until: float | None) -> float | None:
    """Seconds between two looks at a lock, of which the last is due at `until` (time.monotonic()); None: the usual."""
    if until is None:
        return None
    left = max(until - time.monotonic(), 0.001)
    # Rounded up, without loading `math` for it.
    return left / -(-left // LOCK_PATIENCE)


class Patience:
    """Counts how often the same process was found with the session's lock. Looks and not seconds: this process may

    have been suspended itself in between. But for one whose caller waits no longer than `until` (time.monotonic()).
    """

    def __init__(self, session_id: str, directory: Directory, until: float | None = None) -> None:
        self._session_id = session_id
        self._directory = directory
        self._until = until
        self._holder: int | None = None
        self._looks = 0

    def check_time(self) -> None:
        """Raises TimeRanOut if the caller waits no longer."""
        if self._until is not None and time.monotonic() >= self._until:
            who, hint = self._who(lock_holder(self._directory))
            said = f"the time ran out: {self._session_id} is kept locked by {who}"
            raise TimeRanOut(said, hint=hint, session_id=self._session_id)

    def look(self) -> None:
        """Looks once more. Raises LockHeld if it is not to be waited for any longer, and TimeRanOut."""
        self.check_time()
        holder = lock_holder(self._directory)
        self._looks = self._looks + 1 if holder == self._holder else 1
        self._holder = holder
        if self._looks >= (UNSEEN_HOLDER_LOOKS if holder is None else SAME_HOLDER_LOOKS):
            who, hint = self._who(holder)
            raise LockHeld(f"{self._session_id} is kept locked by {who}", hint=hint, session_id=self._session_id)

    def _who(self, holder: int | None) -> tuple[str, str]:
        """What is said of the holder, and what to type."""
        if holder is None:
            hint = f"look on the machines and in the containers that share it: lslocks | grep {self._session_id}"
            return "a process that cannot be seen from here", hint
        name, is_stopped = look_at(holder)
        way = f"let it go on: kill -CONT {holder}" if is_stopped else "wait until it is done"
        who = f"{name} (pid {holder})" + (", which is suspended" if is_stopped else "")
        return who, f"{way}, or end it: kill -9 {holder}"


def look_at(pid: int) -> tuple[str, bool]:
    """The name of a process, and whether it is stopped: suspended, or held by a debugger (proc_pid_stat(5))."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, rest = file.read().rpartition(")")
    except OSError:
        return "a process", False
    return head.partition("(")[2], rest.split()[0] in ("T", "t")
