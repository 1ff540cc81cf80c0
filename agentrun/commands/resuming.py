"""Going on with a run: the same one if it is unfinished, a new one that is linked to it if it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agentrun.commands import control, recovery
from agentrun.commands.execution import check_executable, make_order
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.recovery import Ready, Settled
from agentrun.commands.vigil import Vigil, end_frozen
from agentrun.errors import ConfigError, Conflict, HeldBack, ImpossibleMode, NotFound, RunEnded
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.lease import Lease
from agentrun.records.message import PROMPT
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import RunStatus
from agentrun.store.inbox import Order
from agentrun.store.liveness import InHand
from agentrun.store.locks import take_liveness
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir

How = Literal["continued", "started", "linked"]


class Resumed(NamedTuple):
    """A run that is to be driven by whoever has `liveness`, its executor's lock.

    It is an unfinished one that is `continued`, a queued one that is `started`, or a new one that is `linked` to the
    run `continues`; `message_seq` is the prompt of that. `attempt` counts how often the run has been begun.
    """

    how: How
    session_id: str
    run_id: str
    liveness: int
    attempt: int = 1
    continues: str | None = None
    message_seq: int | None = None

    def to_doc(self) -> Doc:
        """The first line of `resume --json`."""
        return {
            "type": "resumed",
            "how": self.how,
            "sessionId": self.session_id,
            "runId": self.run_id,
            "attempt": self.attempt,
            "continues": self.continues,
            "messageSeq": self.message_seq,
        }


def resume(place: Place, target: Target, begun_by: Callable[[], Doc | None] = lambda: None) -> Resumed:
    """Finds out how the run can go on, and takes it. The caller drives it.

    `begun_by` is asked for the call that begins a new run, if it comes to that.

    Raises HeldBack if something has to be settled first, Conflict if it is driven or waits, ConfigError if its
    configuration does not let it go on.
    """
    run_dir = target.run()
    frozen = None
    if run_dir.view().executor == "frozen" and Vigil().keep(run_dir):
        frozen = end_frozen(place, run_dir)
    view = run_dir.view()
    if view.run.is_over:
        return _link(place, target, run_dir, view.run, begun_by)
    match view.executor, view.status:
        case "lost", _:
            return _continue(place, target, run_dir)
        case "frozen", _ if frozen is not None:
            return _continue(place, target, run_dir, frozen)
        case "none", RunStatus.QUEUED:
            return _start(place, target, run_dir, view)
        case _:
            raise _goes_on(view)


def _continue(place: Place, target: Target, run_dir: RunDir, frozen: Lease | None = None) -> Resumed:
    result = recovery.recover(place, target.session, run_dir, frozen=frozen)
    if isinstance(result, Ready):
        run = result.run
        return Resumed("continued", run.session_id, run.run_id, result.liveness, run.next_attempt)
    if result is None:
        raise _goes_on(run_dir.view())
    if result.run.is_over:
        raise RunEnded(
            f"{run_dir.name} has ended ({result.run.status}): {result.reason}",
            hint=f"begin it anew, linked to this one, with: agentrun resume {run_dir.name}",
            session_id=run_dir.session_id,
            run_id=run_dir.run_id,
        )
    raise _held_back(result.run, result)


def _start(place: Place, target: Target, run_dir: RunDir, view: RunView) -> Resumed:
    with writing(target.session):
        pass  # what a crash left half done of its acceptance is completed by that
    active = target.session.active()
    if active not in (None, run_dir.run_id):
        ahead = f"{run_dir.session_id}/{active}"
        raise ImpossibleMode(
            f"{run_dir.name} waits for its turn behind {ahead}",
            hint=f"watch that with: agentrun show -f {ahead}",
            session_id=run_dir.session_id,
            run_id=run_dir.run_id,
        )
    check_executable(place, view.run)
    run_dir = target.session.run(run_dir.run_id)
    liveness = take_liveness(run_dir.directory)
    if liveness is None:
        raise _goes_on(run_dir.view())
    with InHand(liveness) as hand:
        if run_dir.load().status is not RunStatus.QUEUED:
            raise _goes_on(run_dir.view())  # it was executed, or ended, between the two looks
        hand.keep()
    return Resumed("started", run_dir.session_id, run_dir.run_id, liveness)


def _link(place: Place, target: Target, run_dir: RunDir, run: Run, begun_by: Callable[[], Doc | None]) -> Resumed:
    """A new run with the same prompt, which cites the report of the old one if there is one."""
    if run.unresolved_operations:
        # The same prompt may well lead to the same write, and one that was cut off half way may have happened.
        raise _held_back(run, Settled(run, *recovery.what_is_missing(run, run.unresolved_operations)))
    prompt = target.session.message_at(run.message_seq)
    if prompt is None:
        raise NotFound(f"the prompt of {run_dir.name} cannot be read", session_id=run.session_id, run_id=run.run_id)

    def order() -> Order:
        attachments = tuple((prompt.accept or {}).get("attachments") or ())
        made = make_order(place, run.agent, run.timeout)
        return made._replace(continues=run.run_id, attachments=attachments)

    references = (run.run_id,) if run.report is not None else run.references
    said = control.said(prompt.text, None)
    saying = control.Saying(said, order, mode=PROMPT, references=references, parent_run=begun_by())
    acceptance = control.say(place, Target(target.session, None), saying)
    accepted = acceptance.accepted
    if acceptance.liveness is None:
        raise _goes_on(target.session.run(accepted.run_id).view())
    return Resumed(
        "linked", run.session_id, accepted.run_id, acceptance.liveness,
        continues=run.run_id, message_seq=accepted.message_seq,
    )  # fmt: skip


def _held_back(run: Run, settled: Settled) -> HeldBack | ConfigError:
    refusal = HeldBack if settled.lacks is None else ConfigError
    return refusal(
        f"{run.session_id}/{run.run_id} does not go on: {settled.reason}",
        hint=settled.hint,
        session_id=run.session_id,
        run_id=run.run_id,
    )


def _goes_on(view: RunView) -> Conflict:
    """Nothing is there to be resumed: the run is driven, or waits for the user."""
    name = f"{view.run.session_id}/{view.run.run_id}"
    is_waiting = view.status is RunStatus.WAITING_INPUT
    hint = f"answer it with: agentrun send {view.run.session_id} TEXT" if is_waiting else None
    if is_waiting and (view.run.waiting_for or {}).get("kind") == "approval":
        hint = f"agentrun approve {name}, or agentrun deny {name}"
    return ImpossibleMode(
        f"{name} is {view.words}, so there is nothing to resume",
        hint=hint or f"watch it with: agentrun show -f {name}",
        session_id=view.run.session_id,
        run_id=view.run.run_id,
    )
