"""Giving a run's lease back without ending the run: whoever comes next goes on from what is on disk.

What may still be alive of it goes into the record with that, by the place where it has to be looked for.
"""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.lease import Lease
from agentrun.records.run import Run
from agentrun.states import EventType
from agentrun.store.runs import RunDir
from agentrun.store.sight import out_of_sight
from agentrun.store.writer import Writer


def let_go(
    writer: Writer,
    lease: Lease,
    run_dir: RunDir,
    reason: str,
    *,
    left: tuple[Doc, ...] | None = None,
    executing_ms: int | None = None,
) -> Run:
    """Gives the lease back. `executing_ms` is executing time that no event tells of yet.

    `left` are the run's `whereabouts` from then on; None says that all is ended that can be seen from here.
    """
    spent: Doc = {} if executing_ms is None else {"executingMs": executing_ms}
    run = _release(writer, lease, run_dir, {"reason": reason} | spent, left)
    run_dir.end_lease(writer)
    run_dir.write_snapshot(writer)
    return run


def pass_on(writer: Writer, lease: Lease, run_dir: RunDir, reason: str, lease_seconds: float) -> Run:
    """Gives the lease back to the one executor that is being started, where no lock can be handed to it.

    Until it claims the run, the lease that lies there keeps others away.
    """
    run = _release(writer, lease, run_dir, {"reason": reason}, None)
    run_dir.renew(lease, writer, lease_seconds)
    run_dir.write_snapshot(writer)
    return run


def with_own(run: Run) -> tuple[Doc, ...]:
    """The `whereabouts` of a run whose lease owner leaves something alive behind."""
    return (*run.whereabouts, *run.lost_in())


def _release(writer: Writer, lease: Lease, run_dir: RunDir, payload: Doc, left: tuple[Doc, ...] | None) -> Run:
    run = run_dir.check(lease, writer)
    left = out_of_sight(run_dir, run) if left is None else left
    payload |= {"whereabouts": list(left)} if left != run.whereabouts else {}
    return run_dir.append(lease, writer, EventType.RUN_LEASE_RELEASED, payload, durable=True)
