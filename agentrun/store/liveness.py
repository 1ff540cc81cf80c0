"""Taking a run to drive it: with the executor's lock, or, from an executor that cannot be ended from here, without.

An executor on another machine or in another container may be frozen with the lock in its hands. Whoever fenced it out
by a higher generation then holds a descriptor of the run's directory that has not got the lock yet, and gets it when
the old one lets go. Until then the lease alone keeps others away, and the log decides who takes it: a lease that was
given back is taken once.
"""

from __future__ import annotations

import os

from agentrun.errors import FencedOut
from agentrun.records.codec import Doc
from agentrun.records.run import Run
from agentrun.store.locks import has_liveness, open_liveness, take_liveness
from agentrun.store.runs import RunDir


class InHand:
    """An executor's lock on its way to whoever drives the run, as a context: let go at its end unless that has `keep`.

    Kept open over an error it would make the run look driven for as long as this process lives.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int | None = None) -> None:
        self.fd = fd

    def keep(self) -> int | None:
        """The descriptor, which is the caller's from now on; None if there is none."""
        kept, self.fd = self.fd, None
        return kept

    def let_go(self) -> None:
        """Nobody drives the run from here."""
        fd = self.keep()
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> InHand:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()


def take_to_drive(run_dir: RunDir, run: Run) -> int | None:
    """The executor's lock as a descriptor to keep open; None if an executor has the run.

    Where one that was fenced out still has the lock, the descriptor comes without it.
    """
    if run.fenced is None:
        return take_liveness(run_dir.directory)
    return None if run_dir.is_driven(run) else open_liveness(run_dir.directory)


def still_fenced(run_dir: RunDir, run: Run, liveness: int) -> Doc | None:
    """The fenced executor that keeps `liveness` from having the lock, for the lease to name; None if it has it.

    Raises FencedOut if the run is not to be taken without the lock: somebody else has its lease.
    """
    if has_liveness(run_dir.directory, liveness):
        return None
    if run.fenced is None or run.lease_owner is not None:
        raise FencedOut(
            f"{run_dir.name} is driven by another executor",
            hint=f"watch it with: agentrun show -f {run_dir.name}",
            session_id=run_dir.session_id,
            run_id=run_dir.run_id,
        )
    return run.fenced
