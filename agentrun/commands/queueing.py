"""Waiting for one's turn: a prompt behind the slot whose process stays and executes it itself.

The process holds the liveness lock of its own run from the acceptance on, so whoever frees the slot leaves the run to
it. When it dies the lock is free, and the run is one that nobody drives: the next writer starts it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from agentrun.commands.execution import start_next
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.stops import end_what_was_stopped
from agentrun.errors import Conflict
from agentrun.lifecycle.winding_down import end_overdue
from agentrun.records.views import RunView
from agentrun.states import RunStatus
from agentrun.store import inbox
from agentrun.store.identity import this_actor
from agentrun.store.redo import stopping, writing
from agentrun.store.watch import Watch


class Turn(Enum):
    """Why the waiting is over."""

    HERE = "the slot is its own"
    ENDED = "the run was ended while it waited"
    SIGNALLED = "a signal came"


def await_turn(place: Place, target: Target, *, signals: list[int], wake: int, tell: Callable[[RunView], None]) -> Turn:
    """Waits until the run has the slot, is over, or a signal came; looks when something changes, else once a second.

    `signals` collects the signals, and `wake` becomes readable with each. `tell` is called with the run that is waited
    for, whenever that is another one or something new is wrong with its executor. The caller holds the liveness lock
    of `target`'s run.
    """
    run_dir = target.run()
    watch = Watch(target.session.directory, run_dir.directory)
    told: tuple[str, ...] | None = None
    started: set[str] = set()
    try:
        while not signals:
            if run_dir.load().is_over:
                return Turn.ENDED
            active = target.session.active()
            if active == run_dir.run_id:
                return Turn.HERE
            ahead = _ahead(place, target, active)
            if ahead is not None and told != (ahead.run.run_id, *_trouble(ahead)):
                told = ahead.run.run_id, *_trouble(ahead)
                tell(ahead)
            if ahead is not None and ahead.executor == "none" and ahead.run.run_id not in started:
                # Once for each: one that cannot be started, for want of its configuration, would be tried for ever.
                started.add(ahead.run.run_id)
                start_next(place, target.session)
            watch.wait(also=wake)
        return Turn.SIGNALLED
    finally:
        watch.close()


def _trouble(ahead: RunView) -> tuple[str, ...]:
    """What keeps its executor from getting on, in a word or two; nothing where that is not known of."""
    if ahead.executor not in ("lost", "frozen"):
        return ()
    return (ahead.executor, ahead.late.cause) if ahead.late else (ahead.executor,)


def withdraw(place: Place, target: Target, number: int) -> None:
    """Cancels a run that waits for its turn, for the signal `number` to the process that waits with it."""
    from agentrun.executor.drive import SIGNAL_WORDS

    reason = SIGNAL_WORDS[number]
    run_dir = target.run()
    with stopping(target.session) as writer:
        if run_dir.current(writer).status is RunStatus.QUEUED:
            inbox.request_stop(writer, run_dir, actor=this_actor(), reason=reason, intent="signal", via="signal")
    start_next(place, target.session)


def _ahead(place: Place, target: Target, active: str | None) -> RunView | None:
    """The run that holds the slot. What a process left half done that died over its end is completed first, and a run
    that waits for an answer whose time is over is ended.

    Nobody else may come by, and then this run would wait for ever.
    """
    with suppress(Conflict):  # something of it cannot be ended, and whoever looks at it is told so
        end_what_was_stopped(place, target.session)
    if active is None or target.session.run(active).load().is_over:
        with writing(target.session):
            return None
    run_dir = target.session.run(active)
    if run_dir.view().overdue:
        with writing(target.session) as writer:
            if end_overdue(writer, run_dir):
                return None
    return run_dir.view()
