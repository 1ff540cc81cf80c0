"""Asking the world outside from a command, where no executor is there to do it."""

from __future__ import annotations

from agentrun.commands.execution import outside_of
from agentrun.commands.place import Place
from agentrun.lifecycle.winding_down import WIND_DOWN_LEASE
from agentrun.records.lease import Lease
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


def stop_outside(place: Place, session: SessionDir, run_dir: RunDir, lease: Lease) -> None:
    """Asks for what the run's writes began outside to be stopped, and records what became of it.

    The caller holds the run's liveness lock and has ended what was left of its tools. Raises FencedOut.
    """
    if run_dir.load().unresolved_operations or run_dir.load().open_operations:
        import anyio

        from agentrun.executor import asking
        from agentrun.executor.heartbeat import Heartbeat

        heartbeat = Heartbeat(session.another(), run_dir.run_id, WIND_DOWN_LEASE)
        heartbeat.start()
        heartbeat.renew(lease)
        try:
            outside = outside_of(place, run_dir)
            anyio.run(asking.stop_outside, session, run_dir, lease, outside, lambda: run_dir.load().force)
        finally:
            heartbeat.stop()
