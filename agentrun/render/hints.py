"""What to type next: the one place that knows which command helps in which state.

Each function returns lines without newlines. Ids stand alone between spaces, so that they can be copied.
"""

from __future__ import annotations

import time

from agentrun.records.operation import Operation
from agentrun.records.views import Accepted, Late, RunView
from agentrun.render.safe import shown
from agentrun.render.theme import NOTE, QUESTION, Mark, Screen, Span, line, marked, say
from agentrun.render.times import duration, moment
from agentrun.states import OperationStatus, RunStatus


def attention(view: RunView, screen: Screen, now: float | None = None) -> list[str]:
    """What a person must know or do about a run, most urgent first; nothing for a run that is fine."""
    return [
        *_executor(view, screen),
        *_unattended(view, screen),
        *_ahead(view, screen),
        *_unread(view, screen),
        *_survivors(view, screen),
        *_stop_asked(view, screen),
        *_overdue(view, screen),
        *question(view, screen, now),
        *unresolved(view.run.unresolved_operations, screen),
        *_how_to_settle(view, screen),
    ]


def question(view: RunView, screen: Screen, now: float | None = None) -> list[str]:
    """The question that is open, how long it may stay so, and how to answer."""
    waiting = view.run.waiting_for
    if not waiting or view.status is not RunStatus.WAITING_INPUT:
        return []
    left = _left(waiting.get("deadline"), time.time() if now is None else now)
    what = "approval" if waiting.get("kind") == "approval" else "answer"
    head = _marked(QUESTION, f"waits for your {what}{left}", screen)
    text = shown(str(waiting.get("text") or ""), unicode=screen.unicode).split("\n")
    # An answer after its time is refused.
    return [head, *(f"  {each}" for each in text), *([] if view.overdue else how_to_answer(view, screen))]


def how_to_answer(view: RunView, screen: Screen) -> list[str]:
    """The commands that settle the question that is open."""
    waiting = view.run.waiting_for or {}
    if waiting.get("kind") != "approval":
        return [_hint("answer with", f'send {say(view.run.session_id, screen)} "your answer"')]
    operation = say(str(waiting.get("operationId") or ""), screen)
    target = f"{full_id(view, screen)} {operation}".rstrip()
    return [_hint("allow it with", f"approve {target}"), _hint("refuse it with", f"deny {target}")]


def unresolved(operations: tuple[Operation, ...], screen: Screen) -> list[str]:
    """The operations of which nobody knows what they did outside, with all that helps to find out."""
    if not operations:
        return []
    head = _marked(NOTE, "unresolved: what these did outside is not known", screen)
    return [head, *(f"  {_unresolved(operation, screen)}" for operation in operations)]


def _how_to_settle(view: RunView, screen: Screen) -> list[str]:
    """How to say what became of what is unresolved, once nobody else will find out."""
    if not view.run.is_over or not view.run.unresolved_operations:
        return []
    return [_hint("say how they ended with", f"reconcile {full_id(view, screen)}")]


def hints_after_send(view: RunView, screen: Screen) -> list[str]:
    """How to go on after a `send` in the foreground, whatever became of the run.

    What needs attention is said by `attention`, not here.
    """
    session, run = say(view.run.session_id, screen), full_id(view, screen)
    if view.status is RunStatus.WAITING_INPUT or view.executor == "lost":
        return []
    if view.run.is_over:
        return [_hint("go on with", f'send {session} "..."'), _hint("look back with", f"show {run}")]
    return [_hint("watch it with", f"show -f {run}"), _hint("stop it with", f"cancel {run}")]


def hints_after_accept(accepted: Accepted, screen: Screen) -> list[str]:
    """How to follow and stop what was accepted and is executed elsewhere."""
    run = f"{say(accepted.session_id, screen)}/{say(accepted.run_id, screen)}"
    return [
        _hint("watch it with", f"show -f {run}"),
        _hint("steer it with", f'steer {run} "..."'),
        _hint("stop it with", f"cancel {run}"),
    ]


def full_id(view: RunView, screen: Screen) -> str:
    """`SESSION/RUN`, as every command takes it."""
    return f"{say(view.run.session_id, screen)}/{say(view.run.run_id, screen)}"


def _executor(view: RunView, screen: Screen) -> list[str]:
    match view.executor:
        case "lost":
            what = "its executor is gone: nothing drives this run"
        case "frozen" if view.late is not None and view.late.cause in _HELPED_ELSEWHERE:
            return _helped_elsewhere(view.late, screen)
        case "frozen":
            what = _late(view.late, screen)
        case _:
            return []
    name = full_id(view, screen)
    if view.run.unread_events and view.status is not RunStatus.CANCELLING:
        # What such a run has begun is not known, so nobody goes on with it.
        what = f"{view.run.unread_events} of its events cannot be read: it does not go on"
        look = _hint("see what is damaged", f"check {say(view.run.session_id, screen)}")
        return [_marked(NOTE, what, screen), look, _hint("end it with", f"cancel {name}")]
    is_ending = view.status is RunStatus.CANCELLING or view.stop_asked
    take_up = [] if is_ending else [_hint("take it up with", f"resume {name}"), _hint("or all of them", "recover")]
    unknown = [each for each in view.run.unresolved_operations if each.status is OperationStatus.UNKNOWN]
    if unknown and not is_ending:
        # Nothing else helps as long as that is open.
        command = f"reconcile {name} {say(unknown[0].operation_id, screen)} --as succeeded|failed|cancelled"
        take_up = [_hint("say how it ended with", command), _hint("then take it up with", f"resume {name}")]
    if view.late is not None and view.late.cause == "suspended":
        take_up = [f"  let it go on with: kill -CONT {view.late.pid}", *take_up]
    # What keeps it from ending says below what to do about that.
    end = [] if view.run.survivors else [_hint("end it with", f"cancel {name}")]
    return [_marked(NOTE, what, screen), *take_up, *end]


# Another executor could do no better than the one that is there, and no command stores anything either.
_HELPED_ELSEWHERE = ("kept_waiting", "no_room")


def _late(late: Late | None, screen: Screen) -> str:
    """What is seen of an executor that another one may have to replace."""
    match late:
        case Late(cause="suspended", pid=pid):
            return f"its executor (pid {pid}) is suspended: nothing goes on as long as it is"
        case Late(cause="silent", pid=pid):
            return f"its executor (pid {pid}) is there, and renews no lease: it stands still, or its disk is slow"
        case Late(owner=owner):
            return f"its executor {say(owner, screen)} does not respond, and its lease has run out"
        case None:
            return "its executor does not respond, and its lease has run out"


def _helped_elsewhere(late: Late, screen: Screen) -> list[str]:
    if late.cause == "no_room":
        what = f"its executor (pid {late.pid}) cannot renew its lease: no room is left on the disk"
        return [_marked(NOTE, what, screen), "  make room, and it goes on by itself"]
    keeper = late.keeper or {}
    is_suspended, pid = keeper.get("suspended"), keeper.get("pid")
    which = ", which is suspended," if is_suspended else ""
    has = f"{say(str(keeper.get('name')), screen)} (pid {pid}){which} has the session's lock"
    what = f"its executor (pid {late.pid}) cannot renew its lease: {has}"
    way = f"let that go on with: kill -CONT {pid}" if is_suspended else "wait until that is done"
    return [_marked(NOTE, what, screen), f"  {way}", f"  or end it with: kill -9 {pid}"]


def _unattended(view: RunView, screen: Screen) -> list[str]:
    """Of a run that was just accepted, its executor may be about to come."""
    if not view.unattended:
        return []
    name = full_id(view, screen)
    what = "its turn has come, and nobody is there yet who begins it"
    return [
        _marked(NOTE, what, screen),
        _hint("if it stays so, begin it with", f"resume {name}"),
        _hint("or give it up with", f"cancel {name}"),
    ]


def _ahead(view: RunView, screen: Screen) -> list[str]:
    """Of a run that waits behind one that nobody gets on with."""
    run_id = view.lost_ahead or view.frozen_ahead
    if run_id is None:
        return []
    ahead = f"{say(view.run.session_id, screen)}/{say(run_id, screen)}"
    why = "whose executor is gone" if view.lost_ahead else "whose executor does not respond"
    return [
        _marked(NOTE, f"it waits behind {ahead}, {why}", screen),
        _hint("see what that needs with", f"show {ahead}"),
        _hint("or give this one up with", f"cancel {full_id(view, screen)}"),
    ]


def _unread(view: RunView, screen: Screen) -> list[str]:
    """Of a run that has ended: one that has not does not go on for that, which is said with its executor."""
    count = view.run.unread_events
    if not count or not view.run.is_over:
        return []
    what = (
        "1 of its events is lost or cannot be read"
        if count == 1
        else f"{count} of its events are lost or cannot be read"
    )
    return [
        _marked(NOTE, f"{what}: what is shown of it may not be all", screen),
        _hint("see what is damaged", f"check {say(view.run.session_id, screen)}"),
    ]


def _survivors(view: RunView, screen: Screen) -> list[str]:
    if not view.run.survivors:
        return []
    head = _marked(NOTE, "it stays as it is until these have ended, which could not be ended", screen)
    lines = [head, *(f"  {say(name, screen)}" for name in view.run.survivors)]
    for name in view.run.runs_among(view.run.survivors):
        lines.append(_hint("a run that it began, which says what keeps it", f"cancel {say(name, screen)}"))
    if view.run.whereabouts:
        lines += [
            _hint(
                "where that can be seen (on the machine itself, in that container)", f"cancel {full_id(view, screen)}"
            ),
            _hint("if that container is gone, say so", f"cancel {full_id(view, screen)} --gone"),
        ]
    return lines


def _stop_asked(view: RunView, screen: Screen) -> list[str]:
    return [_marked(NOTE, "stop asked, not taken up", screen)] if view.stop_asked else []


def _overdue(view: RunView, screen: Screen) -> list[str]:
    what = "overdue: its deadline has passed and nobody has enforced it yet"
    return [_marked(NOTE, what, screen)] if view.overdue else []


def _unresolved(operation: Operation, screen: Screen) -> str:
    remote = f"remote id {say(operation.remote_id, screen)}" if operation.remote_id else "no remote id"
    words = [operation.operation_id, operation.name, operation.status.value, remote]
    if operation.resource:
        words.append(f"resource {operation.resource}")
    return "  ".join(say(word, screen) for word in words)


def _left(deadline: object, now: float) -> str:
    until = moment(deadline) if isinstance(deadline, str) else None
    if until is None:
        return ""
    return f" ({duration(until - now)} left)" if until > now else " (its time is over)"


def _marked(mark: Mark, text: str, screen: Screen) -> str:
    return line([marked(mark, screen), Span(f" {text}", mark.style)], screen)


def _hint(what: str, command: str) -> str:
    return f"  {what}: agentrun {command}"
