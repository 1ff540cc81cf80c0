"""Stopping a run from outside: the intent, and that it is wound down where no executor is left to do it."""

from __future__ import annotations

from agentrun.commands.doubt import maybe_stored
from agentrun.commands.execution import then_start_next
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.errors import HeldBack, NewerFormat, RunEnded
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import RunStatus
from agentrun.store import inbox, layout
from agentrun.store.identity import this_actor
from agentrun.store.locks import is_executor_alive
from agentrun.store.redo import stopping
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.commands.abandoned import Taken


class Stop(NamedTuple):
    """An intent to stop a run: who, why, and the words of its event.

    `force` leaves no grace period. `gone` is the user's word that nothing of the run is alive in the containers of
    former executors, where those cannot be seen from here.
    """

    actor: Doc
    reason: str
    intent: str
    via: str
    force: bool = False
    gone: bool = False


def cancel(place: Place, target: Target, reason: str, *, force: bool = False, gone: bool = False) -> RunView:
    """Stores the intent to stop a run, and winds it down here if its executor is gone.

    With `force`, what is alive is killed at once; said of a run that winds down already, its grace period is over.
    `gone` is as for `Stop`. Returns the run as it stands then: still `cancelling` where an executor has it. Raises
    RunEnded if it had ended, and HeldBack if it is to be seen that the user's word is wrong.
    """
    again = "cancel it again, which changes nothing if it was stored"
    with then_start_next(place, target.session), maybe_stored(_name(target), again):
        try:
            return _cancel(place, target, Stop(this_actor(), reason, "cancel", "command", force, gone))
        except NewerFormat as error:
            error.hint = _with_the_way_of_all_versions(target.run(), error.hint)
            raise


def _with_the_way_of_all_versions(run_dir: RunDir, hint: str | None) -> str | None:
    """What to type where the run is of a newer version and its executor is there: that one heeds the file as well."""
    if not is_executor_alive(run_dir.directory):
        return hint
    import shlex

    return f"{hint}\nor have its executor stop it: touch {shlex.quote(run_dir.directory.at(layout.CANCEL))}"


def _cancel(place: Place, target: Target, asked: Stop) -> RunView:
    run_dir = target.run()
    if not stop(place, target.session, run_dir, asked):
        return _already_over(run_dir, run_dir.load())
    return run_dir.view()


def _already_over(run_dir: RunDir, run: Run) -> RunView:
    if run.status is RunStatus.CANCELLED:
        return run_dir.view()
    raise run_ended(run)


def _name(target: Target) -> str:
    return "/".join(part for part in (target.session.session_id, target.run_id) if part)


def stop(place: Place, session: SessionDir, run_dir: RunDir, asked: Stop) -> bool:
    """Stores the intent, and winds the run down here if its executor is gone. False if it was over before.

    Raises NotEnded if something of it cannot be ended.
    """
    with stopping(session) as writer:
        run = run_dir.current(writer)
        if run.is_over:
            run_dir.events.sync()
            return False
        if asked.gone:
            _check_gone(run_dir, run)
        run = inbox.request_stop(writer, run_dir, **asked._asdict())
        taken = None if run.is_over else take_over_if_lost(writer, run_dir, gone=asked.gone)
    wind_down_lost(place, session, run_dir, taken)
    return True


def _check_gone(run_dir: RunDir, run: Run) -> None:
    """Raises HeldBack if an executor that was fenced out has its lock still: then it is alive, wherever it is."""
    if run.fenced is None or run_dir.is_driven(run) or not is_executor_alive(run_dir.directory):
        return
    from agentrun.records.lease import owner_words

    raise HeldBack(
        f"{owner_words(run.fenced)} is not gone: it does not respond, and has its lock on {run_dir.name}",
        hint="end it where it runs, then say it again",
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
    )


def end_what_was_stopped(place: Place, session: SessionDir) -> None:
    """Winds down the active run if it was told to stop and nobody is left who would do it: whoever comes next does."""
    run_id = session.active()
    if run_id is None:
        return
    view = session.run(run_id).view()
    is_told = view.stop_asked or view.status is RunStatus.CANCELLING
    if not is_told or view.executor not in ("lost", "none"):
        return
    run_dir = session.run(run_id)
    with stopping(session) as writer:
        is_stopping = run_dir.current(writer).status is RunStatus.CANCELLING
        taken = take_over_if_lost(writer, run_dir) if is_stopping else None
    wind_down_lost(place, session, run_dir, taken)


def take_over_if_lost(writer: Writer, run_dir: RunDir, *, gone: bool = False) -> Taken | None:
    """Claims a run that is to stop and whose executor is gone; None if it is not gone, or somebody else is at it.

    `gone` is as for `Stop`.
    """
    run = run_dir.current(writer)
    if run_dir.is_driven(run):
        return None
    from agentrun.commands.abandoned import take_over

    return take_over(writer, run_dir, run, gone=gone)


def wind_down_lost(place: Place, session: SessionDir, run_dir: RunDir, taken: Taken | None) -> None:
    """Ends what the dead executor of a run left running, then the run, if it was `taken` over.

    What cannot be ended keeps it in `cancelling`, is named there, and raises NotEnded.
    """
    if taken is None:
        return
    from agentrun.commands.abandoned import wind_down_taken

    wind_down_taken(place, session, run_dir, taken)


def run_ended(run: Run) -> RunEnded:
    """The refusal of what only a run could take that goes on."""
    return RunEnded(
        f"{run.session_id}/{run.run_id} has ended ({run.status})",
        hint=f"start a new run with: agentrun send {run.session_id} TEXT",
        session_id=run.session_id,
        run_id=run.run_id,
    )
