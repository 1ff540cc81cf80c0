"""Asks the world outside about the writes of a run that is being wound down, and records what it says.

Whoever winds a run down does this after everything local has ended and before the end is recorded: a job whose tool was
killed is asked to stop, and what is known of it then is stored. Nothing is started, and nothing is tried again. What
nobody could answer for stays unresolved.
"""

from __future__ import annotations

from collections.abc import Callable

from agentrun.agent.outside import Outside, ask_to_stop
from agentrun.lifecycle.settlement import Finding, record_finding
from agentrun.records.lease import Lease
from agentrun.records.operation import WRITE, Operation
from agentrun.records.run import Run
from agentrun.states import OperationStatus
from agentrun.store.redo import stopping
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


def in_doubt(run: Run) -> list[Operation]:
    """The writes of `run` of which nobody here knows what they did outside."""
    under_way = [each for each in run.open_operations if each.status is OperationStatus.RUNNING]
    return [each for each in (*under_way, *run.unresolved_operations) if each.effect == WRITE]


async def stop_outside(
    session: SessionDir, run_dir: RunDir, lease: Lease, outside: Outside, is_forced: Callable[[], bool]
) -> None:
    """Asks for each write that is in doubt to be stopped, and records what became of it. Raises FencedOut.

    Nothing of the run may be alive here any more; `is_forced` as for `ask_to_stop`.
    """
    doubtful = [each for each in in_doubt(run_dir.load()) if outside.can_cancel(each) or outside.can_probe(each)]
    if not doubtful:
        return
    answers = await ask_to_stop(doubtful, outside, is_forced)
    with stopping(session) as writer:
        for operation in doubtful:
            # Also between two of them: a fenced one writes nothing more.
            run_dir.check(lease, writer)
            answer = answers[operation.operation_id]
            finding = Finding(OperationStatus(answer.status), answer.evidence, answer.result)
            record_finding(writer, run_dir, operation, finding)
