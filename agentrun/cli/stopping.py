"""`cancel`: stop a run, or one operation of it."""

from __future__ import annotations

import sys
import time

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import CANCEL_REASON, Options
from agentrun.commands import stops
from agentrun.commands.names import Target, find
from agentrun.commands.place import Place
from agentrun.errors import NotEnded, SessionHeld, TimeRanOut, UsageError
from agentrun.named import NamedTuple
from agentrun.records.views import RunView
from agentrun.render.standing import attention_text, operation_text, standing_text
from agentrun.states import RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentrun.commands.operations import OperationView
    from agentrun.commands.show import Follower


class Asked(NamedTuple):
    """The options of `cancel`."""

    reason: str = CANCEL_REASON
    operation: str | None = None
    force: bool = False
    wait: bool = False
    timeout: str | None = None
    gone: bool = False


def cancel(options: Options, name: str, asked: Asked) -> int:
    """Stores the intent, waits for the end if asked to, and says how the run, or its operation, stands."""
    if asked.timeout is not None and not asked.wait:
        raise UsageError("--timeout says how long to --wait", hint="agentrun cancel SESSION --wait --timeout 30s")
    if asked.gone and asked.operation is not None:
        raise UsageError("--gone is said of a whole run", hint="agentrun cancel SESSION --gone")
    until = _until(asked.timeout)
    place = options.place()
    found = find(place.tree, name)
    target = Target(found.session, found.run().run_id)
    # The time that was given is for all of it: also for the lock that somebody may have who does not let go.
    target.session.patient_until = until
    if asked.operation is not None:
        return _cancel_operation(options, place, target, asked, until)
    view, is_stuck = _cancel_run(place, target, asked, until)
    if asked.wait and not view.run.is_over and not is_stuck:
        view = _wait(target, until, _over_or_frozen(options))
        if view.executor == "frozen":
            # It will not wind down, and has been given the time to show that it could.
            _take_from_frozen(place, target, until)
        if view.executor in ("lost", "frozen"):
            # It died over winding down; whoever comes next does that, and that is us.
            view, _ = _cancel_run(place, target, asked, until)
        elif view.run.is_over and view.run.status is not RunStatus.CANCELLED:
            # Something else had been decided before, and won: it says what.
            view, _ = _cancel_run(place, target, asked, until)
    if options.json:
        output.out_json(view.to_doc())
    else:
        screen = output.screen_of(sys.stdout, options)
        output.out(standing_text(view, screen))
        output.say(attention_text(view, output.screen_of(sys.stderr, options)))
    return exits.of_cancel(view)


def _until(text: str | None) -> float | None:
    """When the time is over that `text` gives from now on, by time.monotonic()."""
    if not text:
        return None
    from agentrun.config import parse_duration

    return time.monotonic() + parse_duration(text)


def _cancel_run(place: Place, target: Target, asked: Asked, until: float | None) -> tuple[RunView, bool]:
    """The run as it stands then, and whether all was done for its end that can be done from here, in vain."""
    try:
        return _asked_to_stop(place, target, asked)
    except SessionHeld:
        from agentrun.commands.vigil import Vigil, end_frozen, held_elsewhere

        # Nothing can be stored as long as the frozen executor holds the lock: it is ended first.
        if not Vigil().keep(target.run(), until):
            raise
        frozen = end_frozen(place, target.run(), until)
        try:
            return _asked_to_stop(place, target, asked)
        except SessionHeld as error:
            raise held_elsewhere(target.run(), frozen) if frozen else error from error


def _asked_to_stop(place: Place, target: Target, asked: Asked) -> tuple[RunView, bool]:
    try:
        return stops.cancel(place, target, asked.reason, force=asked.force, gone=asked.gone), False
    except TimeRanOut as error:
        if target.run().load().ending is None:
            error.message += "; no stop is stored"
        raise
    except NotEnded as error:
        view = target.run().view()
        if not view.run.survivors:
            output.note(error.message, *(error.hint or "").splitlines())
        return view, True  # the intent is stored, and the view names what is alive


def _take_from_frozen(place: Place, target: Target, until: float | None) -> None:
    """Ends the executor, or, where that is not to be found here, winds the run down in its stead."""
    from agentrun.commands.vigil import end_frozen

    frozen = end_frozen(place, target.run(), until)
    if frozen is not None:
        from agentrun.commands.recovery import recover

        recover(place, target.session, target.run(), frozen=frozen)


def _over_or_frozen(options: Options) -> Callable[[Follower], bool]:
    """Whether the run is over, or its executor counts as frozen; that this takes a while is said once."""
    from agentrun.commands.vigil import Vigil

    vigil = Vigil()
    told: list[str] = []

    def is_done(follower: Follower) -> bool:
        if follower.is_over or follower.view.executor != "frozen":
            return follower.is_over
        left = vigil.seconds_left(follower.run_dir)
        if left > 0 and not (told or options.json):
            seconds = f"{max(left, 1):.0f} s"
            told.append(follower.run_dir.name)
            output.note(
                f"the executor of {told[0]} does not renew its lease: it is ended if that stays so for {seconds}"
            )
        return left <= 0

    return is_done


def _cancel_operation(options: Options, place: Place, target: Target, asked: Asked, until: float | None) -> int:
    from agentrun.commands import control, operations

    assert asked.operation is not None
    found = operations.cancel_operation(place, target, asked.operation, asked.reason, force=asked.force)
    if found.acceptance is not None:
        control.drive_on(place, found.acceptance)
    if asked.wait and found.operation.is_open:
        found = _wait_for_operation(target, asked.operation, until)
    if not found.operation.is_open and not found.is_stopped:
        raise operations.over(found.view.run, found.operation)
    if options.json:
        output.out_json(found.to_doc())
    else:
        output.out(operation_text(found.view, found.operation, output.screen_of(sys.stdout, options)))
        output.say(attention_text(found.view, output.screen_of(sys.stderr, options)))
    return exits.of_operation(found.operation)


def _wait_for_operation(target: Target, operation_id: str, until: float | None) -> OperationView:
    """Waits until the operation is over, or nobody is there who would end it."""
    from agentrun.commands.operations import operation_view

    def is_settled(follower: Follower) -> bool:
        is_open = any(each.operation_id == operation_id for each in follower.view.run.open_operations)
        return not is_open or follower.is_over

    _wait(target, until, is_settled)
    return operation_view(target.run(), operation_id)


def _wait(target: Target, until: float | None, is_done: Callable[[Follower], bool]) -> RunView:
    from agentrun.commands.show import Follower

    follower = Follower(target)
    try:
        while not is_done(follower):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                run = target.run()
                raise TimeRanOut(
                    f"{run.name} is still {follower.view.words}",
                    hint=f"watch it with: agentrun show -f {run.name}",
                    session_id=run.session_id,
                    run_id=run.run_id,
                )
            follower.wait(left)
            follower.step()
        return follower.view
    finally:
        follower.close()
