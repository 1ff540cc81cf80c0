"""Going round the runs of an account that nobody drives although somebody should: one pass, or again and again.

A patrol executes nothing itself. Each run that can go on gets an executor of its own, so any number of patrols may be
about at once: whoever claims a run first has it, and a run that is driven is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from agentrun.commands import recovery
from agentrun.commands.execution import check_executable, start_detached, start_next
from agentrun.commands.foresight import foreseen
from agentrun.commands.kinship import tell_parents
from agentrun.commands.place import Place
from agentrun.commands.recovery import Ready
from agentrun.commands.vigil import Vigil, end_frozen
from agentrun.errors import AgentrunError, ConfigError, FencedOut, HeldBack, LockHeld, SessionHeld
from agentrun.lifecycle.recovery import unknown_operations
from agentrun.lifecycle.winding_down import end_overdue
from agentrun.named import NamedTuple
from agentrun.records.lease import Lease
from agentrun.records.views import Recovered, RunView
from agentrun.states import TERMINAL, RunStatus
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.views import RecoveredAs

# Seconds between two rounds of a service. Looking at a session costs a few system calls.
ROUND = 1.0
# Seconds until a run that was left as it is, is looked at again; doubled each time up to the longest. Its probes ask
# systems outside, which should not feel it.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
# Seconds between two looks at all sessions; in between only those are looked at that somebody used.
WHOLE_ROUND = 600.0


class _Beat(NamedTuple):
    """When a session is to be looked at again, at the latest, and what was last seen of it."""

    due: float = 0.0
    pause: float = FIRST_PAUSE
    was_alive: bool = False
    attempts: int = -1

    def after(self, now: float, view: RunView) -> _Beat:
        """What to keep in mind of a run that was looked at: one that does not get on is looked at less and less."""
        is_alive = view.executor == "alive"
        same = self.attempts == view.run.attempts and not is_alive
        pause = min(2 * self.pause, LONGEST_PAUSE) if same else FIRST_PAUSE
        return _Beat(now + pause, pause, is_alive, view.run.attempts)


class Patrol:
    """Remembers between two rounds whose lease has run out since when."""

    def __init__(
        self, place: Place, on_damage: Callable[[AgentrunError], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` is the clock by which a run that is left is given a pause, in seconds."""
        self._now = now
        self._place = place
        self._vigil = Vigil()
        self._on_damage = on_damage

    def once(self) -> Iterator[Recovered]:
        """One pass over the account. Runs whose executor may be frozen come last: that takes a lease to find out."""
        frozen: list[tuple[SessionDir, RunDir]] = []
        for session_id in self._place.tree.unfinished_ids():
            yield from self._guarded(session_id, partial(self._visit, session_id, frozen))
        for session, run_dir in frozen:
            # All of them are watched at the same time.
            yield from self._guarded(session.session_id, partial(self._begin_watching, run_dir))
        for session, run_dir in frozen:
            yield from self._guarded(session.session_id, partial(self._frozen, session, run_dir))

    def watch(self, wait: Callable[[float], bool]) -> Iterator[Recovered]:
        """Goes round until `wait`, which lets that many seconds pass, returns that it is to end.

        Only sessions that have something open, or that somebody uses, are looked at again and again.
        """
        due, noted_until = 0.0, 0
        beats: dict[str, _Beat] = {}
        while True:
            now = self._now()
            noted, noted_until = self._place.tree.noted_since(noted_until)
            if noted is None:
                # Nothing tells who used what, so all are looked at each time; those that are known keep their pauses.
                noted = set(self._place.tree.unfinished_ids()) - beats.keys()
            elif now >= due:
                noted |= set(self._place.tree.unfinished_ids())
                due = now + WHOLE_ROUND
            for session_id in noted:
                beats[session_id] = _Beat()
            for session_id in list(beats):
                yield from self._guarded(session_id, partial(self._look_again, session_id, beats))
            if wait(ROUND):
                return

    def dry_run(self) -> Iterator[Recovered]:
        """What a pass would do. Writes nothing, asks nobody outside and waits for nothing."""
        for session_id in self._place.tree.unfinished_ids():
            yield from self._guarded(session_id, partial(self._foreseen, session_id))

    # --- below

    def _look_again(self, session_id: str, beats: dict[str, _Beat]) -> Recovered | None:
        beat, now = beats.pop(session_id), self._now()
        session = self._place.tree.listed(session_id)
        run_dir = _active_run(session) if session else None
        if session is None or run_dir is None:
            return None
        if now < beat.due and run_dir.is_driven(run_dir.load()) == beat.was_alive:
            beats[session_id] = beat
            return None
        view = run_dir.view()
        if view.executor == "frozen":
            left = self._vigil.seconds_left(run_dir)
            beats[session_id] = beat._replace(due=now + left, was_alive=True)
            return None if left > 0 else self._frozen(session, run_dir)
        try:
            return self._recover(session, run_dir, view)
        finally:
            # Also if something went wrong: what is damaged is not looked at every second. From now on: a probe may have
            # taken longer than the pause, and would be asked again at once.
            beats[session_id] = beat.after(self._now(), view)

    def _foreseen(self, session_id: str) -> Recovered | None:
        session = self._place.tree.listed(session_id)
        return foreseen(self._place, session) if session else None

    def _visit(self, session_id: str, frozen: list[tuple[SessionDir, RunDir]]) -> Recovered | None:
        session = self._place.tree.listed(session_id)
        run_dir = _active_run(session) if session else None
        if session is None or run_dir is None:
            return None
        view = run_dir.view()
        if view.executor == "frozen":
            frozen.append((session, run_dir))
            return None
        return self._recover(session, run_dir, view)

    def _begin_watching(self, run_dir: RunDir) -> None:
        self._vigil.seconds_left(run_dir)

    def _guarded(self, session_id: str, look: Callable[[], Recovered | None]) -> Iterator[Recovered]:
        """What `look` says. A session that is damaged or cannot be written hides no other.

        Of one that was removed meanwhile, or is noted and not made yet, there is nothing to say.
        """
        try:
            found = look()
        except FencedOut:
            return  # another patrol has it now
        except AgentrunError as error:
            if self._place.tree.is_listed(session_id):
                self._on_damage(error)
            return
        if found is not None:
            yield found

    def _recover(self, session: SessionDir, run_dir: RunDir, view: RunView) -> Recovered | None:
        match view.executor, view.status:
            case "none", RunStatus.QUEUED:
                try:
                    check_executable(self._place, view.run)
                except ConfigError as error:
                    return _told(run_dir, "left", error.message, error.hint)
                started = start_next(self._place, session)
                return _told(run_dir, "started", "it was its turn and nobody drove it") if started else None
            case "none", RunStatus.WAITING_INPUT if view.overdue:
                with writing(session) as writer:
                    ended = end_overdue(writer, run_dir)
                start_next(self._place, session)
                if ended:
                    return _told(run_dir, "ended", "no answer came in time")
                return self._lost(session, run_dir) if run_dir.view().executor == "lost" else None
            case "lost", _:
                return self._lost(session, run_dir)
            case _:
                return None

    def _lost(self, session: SessionDir, run_dir: RunDir, frozen: Lease | None = None) -> Recovered | None:
        result = recovery.recover(self._place, session, run_dir, frozen=frozen)
        if isinstance(result, Ready):
            start_detached(self._place, run_dir.session_id, run_dir.run_id, result.liveness)
            lost = "was lost" if frozen is None else f"{frozen.owner} does not respond and was fenced out"
            return _told(run_dir, "continued", f"its executor {lost}; this is attempt {result.run.next_attempt}")
        if result is None:
            return None
        if result.run.is_over:
            tell_parents(self._place, result.run)
            start_next(self._place, session)
            return _told(run_dir, "ended", result.reason)
        return _told(run_dir, "left", result.reason, result.hint)

    def _frozen(self, session: SessionDir, run_dir: RunDir) -> Recovered | None:
        if self._vigil.keep(run_dir):
            try:
                frozen = end_frozen(self._place, run_dir)
                if frozen is not None:
                    return self._lost(session, run_dir, frozen)
            except (HeldBack, LockHeld, SessionHeld) as error:
                return _told(run_dir, "left", error.message, error.hint)
        return self._recover(session, run_dir, run_dir.view())


def _active_run(session: SessionDir) -> RunDir | None:
    """The run that holds the slot, or should: what a crash left half done is completed by that."""
    run_id = session.active()
    status = session.run(run_id).load().status if run_id is not None else None
    # A queued one may not be made yet, or have the slot of one that was begun.
    if status in (None, RunStatus.QUEUED, *TERMINAL):
        with writing(session):
            pass
        run_id = session.active()
    return session.run(run_id) if run_id else None


def _told(run_dir: RunDir, what: RecoveredAs, reason: str, hint: str | None = None) -> Recovered:
    view = run_dir.view()  # what is stored may still be `running`, though its executor is gone
    run = view.run
    unknown = tuple(unknown_operations(run)) if what == "left" else ()
    return Recovered(run.session_id, run.run_id, what, view.status, reason, hint, unknown)
