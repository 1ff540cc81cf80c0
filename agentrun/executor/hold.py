"""What an executor holds of the run that it drives: the lease, the lock, and what it has seen.

Everything here is done in short holds of the session's lock. A stop, a takeover and the clock reach the agent through
`scope`, which is cancelled when the run must not go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn
from weakref import WeakSet

import anyio

from agentrun import clock
from agentrun.agent.checks import Check
from agentrun.errors import AgentrunError, Denied, FencedOut, SlotTaken, StorageFailed
from agentrun.executor.audience import Audience
from agentrun.executor.operation_stops import OperationStops
from agentrun.executor.stopwatch import Stopwatch
from agentrun.lifecycle.leaving import let_go, with_own
from agentrun.lifecycle.winding_down import UNSEEN, leave_unseen, name_survivors, wind_down
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.lease import Lease
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store import inbox
from agentrun.store.liveness import still_fenced
from agentrun.store.locks import has_liveness
from agentrun.store.redo import recording, redo
from agentrun.store.sessions import SessionDir
from agentrun.store.sight import may_leave_processes, note_of_end
from agentrun.store.writer import Writer

E = EventType

# Events after which `run.json` is written again while the run goes on, with the next of them that is synced, and twice
# as many without one: whoever looks at it, stops it or says something to it folds what came since.
SNAPSHOT_EVERY = 128


class Terms(NamedTuple):
    """What a stretch keeps to. Seconds; None is no limit. A report has to pass `checks`."""

    lease: float
    timeout: float | None
    answer_timeout: float | None
    checks: Sequence[Check] = ()


# What this process drives, for as long as it does.
_holds: WeakSet[Hold] = WeakSet()


class Hold:
    """A run that this process has claimed; it stays claimed until `end` or `release`.

    `liveness` is the descriptor of the executor's lock, which is let go with it; see `store.liveness` for one without.
    `events` are the run's, all of them.
    """

    def __init__(self, session: SessionDir, run_id: str, liveness: int, terms: Terms, audience: Audience) -> None:
        self.session = session
        self.run_dir = session.run(run_id)
        self.terms = terms
        self.audience = audience
        self.events: list[Event] = []
        self.operation_stops = OperationStops()
        self.scope = anyio.CancelScope()
        # Why the stretch is over although the run is not: it waits for the user, or is handed over.
        self.left: str | None = None
        self.fenced: FencedOut | None = None
        self._liveness: int | None = liveness
        # Whether the executor's lock shows that this process is alive; else the lease does.
        self.has_lock = True
        self._untold: list[Event] = []
        self._questions = 0
        self._follows_others = False
        self._snapshot_at = 0
        self._watch = Stopwatch()
        self._lease: Lease | None = None
        _holds.add(self)
        self._lease = self._claim()
        self._shown = session.messages.offset_of(self.run_dir.seen.message_seq)

    @property
    def lease(self) -> Lease:
        """The lease under which all of this is written."""
        assert self._lease is not None
        return self._lease

    # --- what the executor's other tasks call

    def look(self) -> bool:
        """Looks whether others wrote into the run; True if it must not go on, and then the agent is stopped."""
        if not self.has_lock and self._liveness is not None:
            # An executor elsewhere had it that was fenced out; once it has let go, the lock shows that we live.
            self.has_lock = has_liveness(self.run_dir.directory, self._liveness)
        self._check_there()
        if self.run_dir.has_news():
            with self._recording() as writer:
                self._going_on(writer)
        if self.fenced or self.run_dir.seen.ending is not None:
            self.scope.cancel()
            return True
        return False

    def may_have_news(self) -> bool:
        """Whether `look` or `show_messages` may find something. Takes no lock, and raises nothing: they do."""
        try:
            return (
                self.run_dir.has_news()
                or self.session.messages.size() != self._shown
                or self._is_removed()
                or not self.has_lock
            )
        except (AgentrunError, OSError):
            return True

    def _check_there(self) -> None:
        """Raises StorageFailed if somebody removed the run's directory: no command finds and stops the run any more."""
        if self._is_removed():
            path = self.run_dir.directory.path
            raise StorageFailed(f"{path}: it was removed while {self.run_dir.name} was executed")

    def _is_removed(self) -> bool:
        directory = self.run_dir.directory
        return directory.fd >= 0 and os.fstat(directory.fd).st_nlink == 0

    def show_messages(self) -> None:
        """Tells the audience of the run's messages that it has not been told of."""
        log = self.session.messages
        for offset, message in log.forward(self.session.message, self._shown):
            self._shown = offset
            if message.run_id == self.run_dir.run_id:
                self.audience.message(message)

    def request_stop(self, intent: str, reason: str, via: str, actor: Doc) -> None:
        """Stores an intent to stop this run, and stops the agent. Not of a run that another executor has by now:

        the time that this one was frozen is not time that the run has used. Nor of one that was left to the user just
        now: nobody would be here to wind it down.
        """
        with self._writing() as writer:
            self._going_on(writer)
            is_ours = not self.fenced and self._liveness is not None
            if is_ours and not self.run_dir.current(writer).is_over:
                inbox.request_stop(writer, self.run_dir, actor=actor, reason=reason, intent=intent, via=via)
        self.look()

    def note_failure(self, reason: str) -> None:
        """Records that the run cannot go on, unless it is ending already."""
        with self._writing() as writer:
            if self._going_on(writer) is not None:
                self.run_dir.append(self.lease, writer, E.RUN_FAILING, {"reason": reason})
                self.run_dir.write_snapshot(writer)

    def hand_over(self, reason: str) -> None:
        """Stops the agent here so that another executor can go on: the run is neither failed nor cancelled."""
        self.left = reason
        self.scope.cancel()

    @property
    def is_given_away(self) -> bool:
        """Whether another executor is to go on with the run in the middle, or has it already."""
        return self.fenced is not None or (self.left is not None and self._liveness is not None)

    def name_survivors(self, names: Sequence[str]) -> None:
        """Records what of the run cannot be ended as long as it cannot."""
        with self._writing() as writer:
            name_survivors(writer, self.lease, self.run_dir, names)

    def note_end(self) -> None:
        """Tells those who have the run now that nothing is alive that was begun here."""
        # Nobody could see that from another container. If it cannot be written, the user is asked for it; so he is
        # where an earlier executor may have left something, which is none of this one's descendants.
        if self._follows_others:
            return
        with suppress(StorageFailed, Denied):
            self.run_dir.keep_stale(self.lease, note_of_end(self.lease.generation))

    def leave_unseen(self) -> bool:
        """Leaves a run that is to end, and of which something may be alive where it cannot be seen from here."""
        if not self.run_dir.seen.whereabouts or self._liveness is None or self.fenced:
            return False
        with self._writing() as writer:
            if not leave_unseen(writer, self.lease, self.run_dir, executing_ms=self._watch.take()):
                return False
            self.left = UNSEEN
            self.release()
        return True

    def leave(self) -> bool:
        """Leaves a run that is over, or lets it go for others to go on with; False if it was told to end meanwhile.

        Then it is not to be left before all of it has been looked for, as that of any other run that ends.
        """
        if self._liveness is None or self.fenced:
            return True
        if self.run_dir.seen.is_over:
            # For good: there is nothing left to record in it.
            self.release()
            return True
        with self._writing() as writer:
            run = self.run_dir.check(self.lease, writer)
            if run.ending is not None and not run.is_over:
                return False
            if not run.is_over:
                operations = [operation.operation_id for operation in run.open_operations]
                payload = {"reason": self.left or "the agent stopped", "operationIds": operations}
                self.run_dir.append(self.lease, writer, E.RUN_RECONCILING, payload)
                self._leave(writer, str(payload["reason"]))
            self.release()
        return True

    def end(self) -> None:
        """Ends the run as it was told to, of which nothing is alive any more."""
        if self._liveness is None or self.fenced:
            return
        with self._writing() as writer:
            if not self.run_dir.check(self.lease, writer).is_over:
                wind_down(writer, self.lease, self.run_dir, executing_ms=self._watch.take())
            self.release()

    def release(self) -> None:
        """Lets the executor's lock go."""
        if self._liveness is not None:
            os.close(self._liveness)
            self._liveness = None

    def seconds_left(self) -> tuple[str, float] | None:
        """Which time limit runs now, `timeout` or `answer_timeout`, and how much of it is left in seconds."""
        run = self.run_dir.seen
        if run.waiting_for is not None:
            deadline = run.waiting_for.get("deadline")
            return ("answer_timeout", clock.seconds_of(deadline) - clock.wall_seconds()) if deadline else None
        spent = self._watch.seconds()
        if self.terms.timeout is None or spent is None:
            return None
        return "timeout", self.terms.timeout - run.usage["executingMs"] / 1000 - spent

    def spent(self) -> float | None:
        """Seconds of executing that no event tells of yet; None while the user is waited for."""
        return self._watch.seconds()

    # --- below

    def _recording(self) -> _Recording:
        return _Recording(self)

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        """As `writing`; but one that was fenced out completes nothing either that others left in the run."""
        try:
            with recording(self.session) as writer:
                if self._is_ours(writer):
                    writer.at_hand = self.run_dir
                    if self._lease is None:
                        self.session.check_writable()
                    else:
                        # It is executed here already, and has to be ended here.
                        self.session.check_recordable()
                    redo(writer)
                yield writer
        finally:
            self._tell()

    def _is_ours(self, writer: Writer) -> bool:
        return self._lease is None or self._going_on(writer) is not None or not self.fenced

    def _keep_snapshot_exact(self, writer: Writer) -> None:
        """Writes the snapshot of a run that is about to act outside, which lasts in the log.

        If the end of the log is lost to anything but a power cut, it still tells of that: the run does not go on then,
        and nothing is done a second time. Not synced, for the same reason.
        """
        self._snapshot_at = self.run_dir.seen.applied_seq
        with suppress(StorageFailed, Denied):
            self.run_dir.write_snapshot(writer, durable=False)

    def _keep_snapshot_near(self, writer: Writer) -> None:
        """Writes the snapshot once it has fallen behind; the end of a long run, too, is reached from there."""
        seq = self.run_dir.seen.applied_seq
        behind = seq - self._snapshot_at
        # It may last through a power cut, so what it tells of has to: the next model request sees to that anyway. Only
        # of a turn with very many calls it does not come soon enough.
        if behind < SNAPSHOT_EVERY or (not self.run_dir.lasts and behind < 2 * SNAPSHOT_EVERY):
            return
        self._snapshot_at = seq
        self.run_dir.settle()
        # It says nothing that the events do not: what the disk refuses, the next of them will say.
        with suppress(StorageFailed, Denied):
            self.run_dir.write_snapshot(writer, durable=False)

    def _tell(self) -> None:
        """Tells the audience what was stored. A script keeps what it is told, numbers too: so that has to last."""
        if not self._untold:
            return
        if self.audience.keeps_what_it_hears:
            self.run_dir.events.sync_for_reading()
        untold, self._untold = self._untold, []
        for event in untold:
            for message in filter(None, map(self.session.message_at, self.audience.forgotten(event))):
                self.audience.message(message)
            self.audience.event(event)

    def _claim(self) -> Lease:
        with self._writing() as writer:
            assert self._liveness is not None
            self._check_turn(writer)
            fenced = still_fenced(self.run_dir, self.run_dir.current(writer), self._liveness)
            self.has_lock = fenced is None
            terms, left = self.terms, self.run_dir.current(writer).whereabouts
            lease = self.run_dir.claim(writer, lease_seconds=terms.lease, timeout=terms.timeout, fenced=fenced)
            # All of them, from the first: the agent decides by them.
            self.run_dir.on_event = self._saw
            for event in self.run_dir.all_events():
                self._saw(event)
            # What an earlier executor left where this one is now is left by this one.
            self._follows_others = self.run_dir.seen.whereabouts != left
        self._snapshot_at = self.run_dir.seen.applied_seq
        self._watch.start()
        return lease

    def _check_turn(self, writer: Writer) -> None:
        """Raises SlotTaken if the run has not begun and another one has the slot: of a session's runs one executes."""
        active, run = self.session.active(), self.run_dir.current(writer)
        if run.status is RunStatus.QUEUED and active not in (None, run.run_id):
            raise SlotTaken(
                f"{self.run_dir.name} waits for its turn behind {active}",
                hint=f"watch that with: agentrun show -f {run.session_id}/{active}",
                session_id=run.session_id,
                run_id=run.run_id,
            )

    def _saw(self, event: Event) -> None:
        if self.events and event.seq <= self.events[-1].seq:
            return
        self.events.append(event)
        self._questions += event.type == E.RUN_WAITING_INPUT
        self.operation_stops.take(event)
        self._untold.append(event)

    def _going_on(self, writer: Writer) -> Run | None:
        """The run, if this stretch may still do new work in it."""
        try:
            run = self.run_dir.check(self.lease, writer)
        except FencedOut as error:
            self.fenced = error
            return None
        return run if run.ending is None and not run.is_over and not self.left else None

    async def _stop_here(self) -> NoReturn:
        self.scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError("a cancelled scope does not go on")

    def _leave(self, writer: Writer, reason: str) -> None:
        """Lets the run go in the hold in which it came to wait: an answer then finds no executor, and takes over."""
        run = self.run_dir.seen
        left = with_own(run) if self._follows_others or may_leave_processes() else run.whereabouts
        let_go(writer, self.lease, self.run_dir, reason, left=left, executing_ms=self._watch.take())
        self.left = reason
        self.release()


class _Recording(recording):
    """A hold for the executor's own facts; whoever looks on is told of them behind it."""

    # No generator: each fact passes here.
    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        super().__init__(hold.session)
        self._hold = hold

    def __exit__(self, *raised: object) -> None:
        try:
            super().__exit__(*raised)
        finally:
            # What may not have lasted is told to nobody.
            if not isinstance(raised[1] if raised else None, StorageFailed):
                self._hold._tell()


def _leave_to_the_parent() -> None:
    """In a forked child, of an agent within this process for one: the run is the parent's.

    The child's copy of the lock would make the run look driven for as long as the child lives, with nobody driving it.
    """
    for hold in list(_holds):
        hold.release()


os.register_at_fork(after_in_child=_leave_to_the_parent)
