"""Saying something to a session: where it goes, and that it is executed."""

from __future__ import annotations

from agentrun.commands.doubt import maybe_stored
from agentrun.commands.execution import check_executable, start_detached, then_start_next
from agentrun.commands.inputs import check_length
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.stops import end_what_was_stopped, run_ended, take_over_if_lost, wind_down_lost
from agentrun.errors import Conflict, ImpossibleMode, NotFound
from agentrun.lifecycle.routing import MODES, WAITING, IfBusy, Standing, route, standing
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.message import ANSWER, COMPACT, PROMPT, Message
from agentrun.records.run import Run
from agentrun.records.views import Accepted, RunView
from agentrun.states import RunStatus
from agentrun.store import inbox
from agentrun.store.identity import this_actor
from agentrun.store.inbox import Input, Order
from agentrun.store.liveness import InHand, take_to_drive
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from agentrun.commands.abandoned import Taken
    from agentrun.commands.attaching import AttachedFile

__all__ = [
    "MODES",
    "Acceptance",
    "IfBusy",
    "Saying",
    "drive_on",
    "said",
    "say",
    "settle",
]


class Saying(NamedTuple):
    """What somebody says, and how it may be taken.

    `order` gives what a new run needs; it is asked under the session's lock, and only if there is to be one. `agent`
    is the one that was named for this input, which no run of another agent takes.
    `drive` asks for the lock of the run if its turn has come and nobody executes it; `stay` also for that of a run
    that has to wait for its turn, since the caller waits with it. `parent_run` is the call that a new run is begun by.
    """

    said: Input
    order: Callable[[], Order]
    mode: str | None = None
    if_busy: IfBusy | None = None
    if_ended_prompt: bool = False
    expect_seq: int | None = None
    references: tuple[str, ...] = ()
    files: tuple[AttachedFile, ...] = ()
    agent: str | None = None
    drive: bool = True
    stay: bool = False
    parent_run: Doc | None = None


class Acceptance(NamedTuple):
    """An accepted input. `liveness` is the lock of its run, held, if the caller has to see that it is executed.

    `began` says that the input began a run, rather than joining one.
    """

    accepted: Accepted
    liveness: int | None
    began: bool


def drive_on(place: Place, acceptance: Acceptance) -> None:
    """Starts a process that drives the run of an accepted input, if nobody else does. Raises StorageFailed."""
    if acceptance.liveness is not None:
        accepted = acceptance.accepted
        start_detached(place, accepted.session_id, accepted.run_id, acceptance.liveness)


def said(text: str, key: str | None) -> Input:
    """`text` as said by the user of this process. Raises UsageError if it is longer than one input may be."""
    check_length(text)
    return Input(text, this_actor(), key)


def say(place: Place, target: Target, saying: Saying) -> Acceptance:
    """Accepts an input: where it goes is decided, stored and acknowledged in one hold of the session's lock.

    Whatever run has got the slot by then is started, unless that is left to the caller. Raises Conflict and its kin
    (nothing was written), NotFound, ConfigError, StorageFailed (it may be stored or not).
    """
    key = saying.said.key
    again = (
        f"say it again with --key {key}" if key else "say it again if it is not there; with a --key no look is needed"
    )
    with InHand() as hand:
        with then_start_next(place, target.session), maybe_stored(f"{target.session.session_id} --messages", again):
            accepted = _say(place, target, saying, hand)
        return Acceptance(accepted, hand.keep(), began=accepted.mode in (PROMPT, COMPACT))


def settle(place: Place, target: Target, operation_id: str | None, approved: bool, note: str | None) -> Acceptance:
    """Gives or refuses the approval that a run waits for. Raises ImpossibleMode if it waits for none or another."""
    word = "approved" if approved else "denied"
    again = "do it again if it still waits"
    with InHand() as hand:
        with then_start_next(place, target.session), maybe_stored(target.session.session_id, again):
            accepted = _settle(place, target, operation_id, Input(word, this_actor(), note=note), hand)
        return Acceptance(accepted, hand.keep(), began=False)


def _say(place: Place, target: Target, saying: Saying, hand: InHand) -> Accepted:
    waited = _waiting_run(target.session)
    end_what_was_stopped(place, target.session)
    with writing(target.session) as writer:
        earlier = inbox.already_accepted(writer, saying.said)
        message = earlier
        if message is None:
            ended = _end_overdue(writer) or _ended_since(waited)
            if ended is not None and not (saying.mode in (PROMPT, COMPACT) or saying.if_busy or saying.if_ended_prompt):
                raise run_ended(ended)  # what was meant as its answer must not begin another run
            inbox.check_last_seq(writer, saying.expect_seq)
            message = _accept(place, writer, target, saying, hand)
        run_dir = target.session.run(message.run_id)
        run = run_dir.current(writer)
        # Said again, it may be to a run that lost its executor since: what that left open is to be settled first.
        lost = earlier is not None and run.status is RunStatus.RUNNING and run.lease_owner is not None
        mode = str(message.mode)
        # A run that others began is executed in nobody's foreground; the answer alone goes on with one.
        drive = saying.drive and not lost and mode in (PROMPT, COMPACT, ANSWER)
        if not drive:
            hand.let_go()
        elif hand.fd is None:
            hand.fd = _take_if_undriven(run_dir, run, writer, stay=saying.stay)
        # The last in this hold: from here on it is wound down, whatever happens.
        interrupted = _take_over_interrupted(writer, message)
    if interrupted is not None:
        from contextlib import suppress

        with suppress(Conflict):  # something of it cannot be ended: it stays cancelling, and the prompt waits behind it
            wind_down_lost(place, target.session, *interrupted)
    return _accepted(target.session, run, message)


def _settle(place: Place, target: Target, operation_id: str | None, said: Input, hand: InHand) -> Accepted:
    run_dir = target.run()
    end_what_was_stopped(place, target.session)
    with writing(target.session) as writer:
        _end_overdue(writer)
        run = run_dir.current(writer)
        waiting = run.waiting_for or {}
        if waiting.get("kind") != "approval" or operation_id not in (None, waiting.get("operationId")):
            raise _not_waiting_for_approval(run_dir.view(), operation_id)
        _check_next_stretch(place, run_dir, run)
        message = _answered(writer, run_dir, run, said, hand)
        run = run_dir.current(writer)
    return _accepted(target.session, run, message)


def _answered(writer: Writer, run_dir: RunDir, run: Run, said: Input, hand: InHand) -> Message:
    """The answer to what `run` waits for; `hand` has the executor's lock if nobody else has it.

    The lock is taken first: from the answer on the run is running, and who looks must not take it for a lost one.
    """
    if not run_dir.is_driven(run):
        hand.fd = take_to_drive(run_dir, run)
    return inbox.answer(writer, run_dir, said)


def _accept(place: Place, writer: Writer, target: Target, saying: Saying, hand: InHand) -> Message:
    addressee, asked = _addressee(target, _active_view(writer), saying)
    mode = route(addressee, asked, saying.if_busy)
    if addressee is None or mode == PROMPT:
        return _accept_prompt(writer, saying, standing(addressee, saying.if_busy), mode)
    _check_brings_nothing(addressee.run, mode, saying)
    if mode == ANSWER:
        run_dir = target.session.run(addressee.run.run_id)
        _check_next_stretch(place, run_dir, addressee.run)
        return _answered(writer, run_dir, addressee.run, saying.said, hand)
    return inbox.add_input(writer, addressee.run.run_id, mode, saying.said)


def _addressee(target: Target, active: RunView | None, saying: Saying) -> tuple[RunView | None, str | None]:
    """The run that decides what becomes of the input, and the kind that is asked for.

    It is the run that holds the slot, or one that was named and waits for its turn. What is said to a run that has
    ended is a new prompt if it may become one: it never goes to another run instead.
    """
    if target.run_id is None or (active is not None and active.run.run_id == target.run_id):
        if active is None and saying.if_ended_prompt:
            return None, PROMPT
        if active is None and saying.mode not in (None, PROMPT, COMPACT):
            _refuse_ended(target, saying.mode)
        return active, saying.mode
    named = target.run().view()
    if named.run.is_over:
        if not saying.if_ended_prompt:
            raise run_ended(named.run)
        return active, PROMPT
    is_prompt = saying.mode == PROMPT or saying.if_busy in WAITING or saying.if_busy is IfBusy.REJECT
    return active if is_prompt else named, saying.mode


def _check_brings_nothing(run: Run, mode: str, saying: Saying) -> None:
    """The run that an input joins has begun, with what its own prompt gave it. Raises ImpossibleMode."""
    brought = {
        "--agent AGENT": saying.agent not in (None, run.agent),
        "--ref RUN": bool(saying.references),
        "--attach FILE": bool(saying.files),
    }
    options = [option for option, is_given in brought.items() if is_given]
    if options:
        names = " and ".join(option.split()[0] for option in options)
        kind = f"an {mode}" if mode == ANSWER else f"a {mode}"
        raise ImpossibleMode(
            f"{names} can only go with a prompt, and this would be {kind} to {run.session_id}/{run.run_id}",
            hint=f"make it a prompt: agentrun send {run.session_id} TEXT {' '.join(options)} --if-busy queue",
            session_id=run.session_id,
            run_id=run.run_id,
        )


def _accept_prompt(writer: Writer, saying: Saying, standing: Standing, mode: str) -> Message:
    for run_id in saying.references:
        if writer.session.run(run_id).report() is None:
            raise NotFound(f"{run_id} has no report to cite", session_id=writer.session.session_id, run_id=run_id)
    order = saying.order()._replace(references=saying.references, at_head=standing is Standing.NEXT)
    order = order._replace(parent_run=saying.parent_run)
    # The last thing before the acceptance: what is refused leaves nothing behind.
    order = order._replace(attachments=tuple(file.keep(writer) for file in saying.files))
    message, _ = inbox.accept_prompt(writer, saying.said, order, mode)
    return message


def _active_view(writer: Writer) -> RunView | None:
    run_id = writer.session.active()
    return writer.session.run(run_id).view() if run_id else None


def _waiting_run(session: SessionDir) -> RunDir | None:
    """The run of which `show` says that it waits for the user, before anything is done about a stop of it."""
    run_id = session.active()
    if run_id is None or session.run(run_id).view().status is not RunStatus.WAITING_INPUT:
        return None
    return session.run(run_id)


def _ended_since(waited: RunDir | None) -> Run | None:
    run = waited.load() if waited else None
    return run if run is not None and run.is_over else None


def _end_overdue(writer: Writer) -> Run | None:
    """The run that waited too long for an answer and has been ended for it, if there was one."""
    run_id = writer.session.active()
    if run_id is None:
        return None
    run_dir = writer.session.run(run_id)
    if run_dir.load().status is not RunStatus.WAITING_INPUT:
        return None
    from agentrun.lifecycle.winding_down import end_overdue

    return run_dir.seen if end_overdue(writer, run_dir) else None


def _check_next_stretch(place: Place, run_dir: RunDir, run: Run) -> None:
    """An answer is not taken if nobody could go on with it: the run would be lost instead of waiting.

    Raises ConfigError.
    """
    if not run_dir.is_driven(run):
        check_executable(place, run)


def _not_waiting_for_approval(view: RunView, operation_id: str | None) -> Conflict:
    run = view.run
    if run.is_over:
        return run_ended(run)
    waiting = run.waiting_for or {}
    asked = f"the approval of {waiting['operationId']}" if waiting.get("operationId") else "no approval"
    return ImpossibleMode(
        f"{run.session_id}/{run.run_id} is {view.words} and waits for {asked}"
        + (f", not of {operation_id}" if operation_id else ""),
        hint=f"see what it waits for: agentrun show {run.session_id}/{run.run_id}",
        session_id=run.session_id,
        run_id=run.run_id,
    )


def _refuse_ended(target: Target, mode: str) -> NoReturn:
    newest = next(iter(target.session.newest_run_ids(1)), None)
    if newest is not None:
        raise run_ended(target.session.run(newest).load())
    name = target.session.session_id
    raise ImpossibleMode(
        f"{name} has no run yet that could take {'an' if mode == ANSWER else 'a'} {mode}",
        hint=f"begin one with: agentrun send {name} TEXT",
        session_id=name,
    )


def _accepted(session: SessionDir, run: Run, message: Message) -> Accepted:
    """The answer to an input, with the run that is waited for if its own has to."""
    active = session.active() if run.status is RunStatus.QUEUED else None
    behind = None if active == run.run_id else active
    return Accepted(run.session_id, run.run_id, message.seq, str(message.mode), run.status, behind)


def _take_if_undriven(run_dir: RunDir, run: Run, writer: Writer, *, stay: bool) -> int | None:
    """The executor's lock, if nobody holds it and the run is to be executed now; or later, if the caller stays."""
    has_turn = writer.session.active() == run.run_id or (stay and run.status is RunStatus.QUEUED)
    due = run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and has_turn
    if not due or run_dir.is_driven(run):
        return None
    return take_to_drive(run_dir, run)


def _take_over_interrupted(writer: Writer, prompt: Message) -> tuple[RunDir, Taken] | None:
    """The run that `prompt` has stopped, if nobody is left who would wind it down."""
    interrupted = writer.interrupted_by(prompt)
    if interrupted is None:
        return None
    run_dir = writer.session.run(interrupted)
    if run_dir.current(writer).status is not RunStatus.CANCELLING:
        return None
    taken = take_over_if_lost(writer, run_dir)
    return None if taken is None else (run_dir, taken)
