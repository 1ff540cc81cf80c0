"""What a run that is over says of the call that began it: `delegate` did what its run did, and that is on disk.

Nobody outside has to be asked for that, and no configuration has to be there. The call of a parent whose child left
something unresolved is unresolved as long as that is, and settled with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentrun.commands.children import children_of
from agentrun.commands.place import Place
from agentrun.config import DELEGATE
from agentrun.errors import AgentrunError
from agentrun.lifecycle.settlement import Finding, settle_doubtful
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.records.views import RunDetail
from agentrun.states import OperationStatus, RunStatus
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

O = OperationStatus  # noqa: E741 - short, as in `states`
_AS = {RunStatus.COMPLETED: O.SUCCEEDED, RunStatus.CANCELLED: O.CANCELLED}


def findings_of_children(place: Place, run: Run, operations: Iterable[Operation]) -> dict[str, Finding]:
    """How those of `operations` ended, by their ids, that delegated to runs which are over with nothing unresolved.

    Nothing is known of any where a run that this one began cannot be read: whose it is stands in there.
    """
    delegated = {each.operation_id for each in operations if each.name == DELEGATE}
    if not delegated:
        return {}
    found: dict[str, Finding] = {}
    unsure: set[str] = set()
    try:
        for child in children_of(place, run):
            if child.operation_id not in delegated:
                continue
            # The last counts: an earlier one was given up for it.
            ended = child.run_dir.load()
            if ended.is_over and not ended.unresolved_operations:
                found[child.operation_id] = _finding(child.run_dir, ended)
            else:
                unsure.add(child.operation_id)
    except AgentrunError:
        return {}
    return {operation_id: each for operation_id, each in found.items() if operation_id not in unsure}


def _finding(child: RunDir, ended: Run) -> Finding:
    report = child.report() if ended.status is RunStatus.COMPLETED else None
    result = None if report is None else report.encode("utf-8", "replace")
    return Finding(_AS.get(ended.status, O.FAILED), f"its run {child.name} ended as {ended.status}", result)


def as_children_tell(place: Place, detail: RunDetail) -> RunDetail:
    """`detail` with what the runs that it began say by now of calls that are unresolved on disk; writes nothing."""
    run = detail.view.run
    found = findings_of_children(place, run, run.unresolved_operations)
    if not found:
        return detail
    left = tuple(each for each in run.unresolved_operations if each.operation_id not in found)
    view = detail.view._replace(run=run._replace(unresolved_operations=left))
    return detail._replace(view=view, operations=tuple(_settled(each, found) for each in detail.operations))


def _settled(operation: Operation, found: dict[str, Finding]) -> Operation:
    finding = found.get(operation.operation_id)
    if finding is None:
        return operation
    result = operation.result if finding.result is None else finding.result.decode("utf-8", "replace")
    return operation._replace(status=finding.status, may_have_effects=False, settled=True, result=result)


def learn_from_children(place: Place, session: SessionDir, run_dir: RunDir) -> None:
    """Records what the children of a run say of its unresolved calls. Raises StorageFailed."""
    doubtful = run_dir.load().unresolved_operations
    found = findings_of_children(place, run_dir.load(), doubtful)
    settle_doubtful(session, run_dir, doubtful, found)


def tell_parents(place: Place, run: Run) -> None:
    """Records in the run that began `run`, and in those above, what its end says of their calls.

    One that cannot be written is told by whoever looks at it. Raises nothing.
    """
    above = run.parent_run
    if above is None or not run.is_over or run.unresolved_operations:
        return
    try:
        session = place.tree.session(str(above.get("sessionId")))
        run_dir = session.run(str(above.get("runId")))
        if not any(each.operation_id == above.get("operationId") for each in run_dir.load().unresolved_operations):
            return
        learn_from_children(place, session, run_dir)
        tell_parents(place, run_dir.load())
    except AgentrunError:
        return
