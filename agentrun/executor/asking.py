"""Asks the world outside about the writes of a run that is being wound down, and records what it says.

Whoever winds a run down does this after everything local has ended and before the end is recorded: a job whose tool was
killed is asked to stop, and what is known of it then is stored. Nothing is started, and nothing is tried again. What
nobody could answer for stays unresolved.
"""

from __future__ import annotations

import anyio

from agentrun.agent.outside import Outside
from agentrun.lifecycle.settlement import Finding, record_finding
from agentrun.records.findings import CancelAnswer, Probed
from agentrun.records.lease import Lease
from agentrun.records.operation import WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import OperationStatus
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

# Seconds that all questions together may hold up the end of a run; they are asked side by side.
ALTOGETHER_SECONDS = 60.0
# Seconds between two looks at a job that was asked to stop, doubled from the first to the second.
_QUICKEST, _SLOWEST = 0.1, 1.0


def in_doubt(run: Run) -> list[Operation]:
    """The writes of `run` of which nobody here knows what they did outside."""
    under_way = [each for each in run.open_operations if each.status is OperationStatus.RUNNING]
    return [each for each in (*under_way, *run.unresolved_operations) if each.effect == WRITE]


async def stop_outside(session: SessionDir, run_dir: RunDir, lease: Lease, outside: Outside) -> None:
    """Asks for each write that is in doubt to be stopped, and records what became of it. Raises FencedOut.

    Nothing of the run may be alive here any more: what still works could do what its probe has just denied.
    """
    doubtful = [each for each in in_doubt(run_dir.load()) if outside.can_cancel(each) or outside.can_probe(each)]
    findings: dict[str, Finding] = {}

    async def ask(operation: Operation) -> None:
        findings[operation.operation_id] = await _stop(operation, outside)

    with anyio.move_on_after(ALTOGETHER_SECONDS):
        async with anyio.create_task_group() as group:
            for operation in doubtful:
                group.start_soon(ask, operation)
    if not doubtful:
        return
    silence = Finding(OperationStatus.UNKNOWN, f"nobody answered within {ALTOGETHER_SECONDS:g} s")
    with writing(session) as writer:
        for operation in doubtful:
            # Also between two of them: a fenced one writes nothing more.
            run_dir.check(lease, writer)
            record_finding(writer, run_dir, operation, findings.get(operation.operation_id, silence))


async def _stop(operation: Operation, outside: Outside) -> Finding:
    asked = await outside.cancel(operation) if outside.can_cancel(operation) else None
    if asked is not None and (asked.is_certain or not outside.can_probe(operation)):
        return _as_cancelled(asked)
    patience = outside.patience(operation) if asked is not None and asked.is_asked else 0.0
    return _as_probed(asked, await _probe(operation, outside, patience))


async def _probe(operation: Operation, outside: Outside, patience: float) -> Probed:
    """What the probe says; of a job that was asked to stop, after it has had `patience` seconds to do so."""
    until, pause = anyio.current_time() + patience, _QUICKEST
    while True:
        probed = await outside.probe(operation)
        if probed.status != "running" or anyio.current_time() + pause > until:
            return probed
        await anyio.sleep(pause)
        pause = min(2 * pause, _SLOWEST)


def _as_cancelled(answer: CancelAnswer) -> Finding:
    # Still running is not known how it ends.
    status = "unknown" if answer.status == "running" else answer.status
    return Finding(OperationStatus(status), answer.evidence, answer.result)


def _as_probed(asked: CancelAnswer | None, probed: Probed) -> Finding:
    evidence = probed.evidence if asked is None else f"{asked.evidence}; {probed.evidence}"
    if not probed.is_certain:
        return Finding(OperationStatus.UNKNOWN, evidence)
    was_stopped = probed.status == "failed" and asked is not None and asked.is_asked
    status = OperationStatus.CANCELLED if was_stopped else OperationStatus(probed.status)
    return Finding(status, evidence, probed.result)
