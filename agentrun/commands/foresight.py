"""What a patrol would do, told without doing it: reads only, asks nobody outside and waits for nothing."""

from __future__ import annotations

from agentrun.commands.execution import config_of
from agentrun.commands.place import Place
from agentrun.commands.recovery import what_is_missing
from agentrun.config import Config
from agentrun.errors import ConfigError
from agentrun.lifecycle.recovery import Verdict, open_writes, stale_findings, unknown_operations, verdict
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.records.views import Recovered, RunView
from agentrun.states import RunStatus
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.views import RecoveredAs


def foreseen(place: Place, session: SessionDir) -> Recovered | None:
    """What a patrol would do about the run whose turn it is; None if nothing."""
    run_id = session.front()
    if run_id is None:
        return None
    run_dir = session.run(run_id)
    view = run_dir.view()
    found = _foreseen_outcome(place, run_dir, view)
    if found is None:
        return None
    what, reason = found
    unknown = tuple(unknown_operations(view.run))
    return Recovered(view.run.session_id, view.run.run_id, what, view.status, reason, None, unknown, dry_run=True)


def _foreseen_outcome(place: Place, run_dir: RunDir, view: RunView) -> tuple[RecoveredAs, str] | None:
    match view.executor, view.status:
        case "none", RunStatus.QUEUED:
            return "started", "it is its turn and nobody drives it"
        case "none", RunStatus.WAITING_INPUT if view.overdue:
            return "ended", "no answer came in time"
        case "frozen", _:
            return "left", "its executor does not renew its lease; it would be watched for one more lease first"
        case "lost", _ if view.run.unread_events and view.run.ending is None:
            return "left", f"{view.run.unread_events} of its events cannot be read"
        case "lost", _:
            return _foreseen_verdict(place, run_dir, view.run)
        case _:
            return None


def _foreseen_verdict(place: Place, run_dir: RunDir, run: Run) -> tuple[RecoveredAs, str]:
    try:
        config = config_of(place, run, warn=lambda _: None)
    except ConfigError as error:
        return ("left", error.message) if run.ending is None else ("ended", "it was told to stop")
    match verdict(run, config.max_attempts, is_used_up=run_dir.is_used_up(run)):
        case Verdict.WIND_DOWN:
            return "ended", "it was told to stop" if run.ending else "its attempts or its time are used up"
        case Verdict.STAY:
            return "left", what_is_missing(run)[0]
        case Verdict.CONTINUE if unanswerable := _unanswerable(run_dir, run, config):
            return "left", what_is_missing(run, unanswerable)[0]
        case Verdict.CONTINUE:
            return "continued", _next_attempt(run)


def _unanswerable(run_dir: RunDir, run: Run, config: Config) -> list[Operation]:
    """The writes under way of which nothing can say how they ended: no probe, and no note of a fenced executor."""
    writes = open_writes(run)
    noted = stale_findings(run_dir, writes)
    probed = {name for name, tool in config.tools.items() if tool.probe is not None}
    return [each for each in writes if each.operation_id not in noted and each.name not in probed]


def _next_attempt(run: Run) -> str:
    writes = [f"{operation.operation_id} ({operation.name})" for operation in open_writes(run)]
    asked = f", after finding out how {', '.join(writes)} ended" if writes else ""
    return f"its executor is lost; attempt {run.next_attempt} would begin{asked}"
