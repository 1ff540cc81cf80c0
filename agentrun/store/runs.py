"""Writing into one run on disk: its events, the snapshot folded from them, its lease and what it produced.

Whatever an executor writes goes through `append` and its neighbours with the lease as first argument: they run under
the session's lock and refuse a lease that is not of the current generation, so a fenced executor writes nothing.

Whoever only reads has this module too: what it needs to write is loaded by what writes.
"""

from __future__ import annotations

import os

from agentrun import clock
from agentrun.errors import CorruptRecord, FencedOut
from agentrun.records.codec import Doc, check_replaceable, encode_document, encode_line
from agentrun.records.event import Event, beginning_of
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store import layout
from agentrun.store.reading import RunReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from agentrun.records.lease import Lease
    from agentrun.store.locks import Held

E = EventType

# These change the status or stand for something that was told to somebody: they last before the lock is let go.
_ALWAYS_SYNCED = frozenset(
    {
        E.RUN_LEASE_ACQUIRED, E.RUN_STARTED, E.MODEL_REQUEST_STARTED, E.RUN_WAITING_INPUT, E.RUN_INPUT_RECEIVED,
        E.RUN_COMPACTING, E.RUN_COMPACTED, E.RUN_CANCEL_REQUESTED, E.RUN_FAILING,
        E.RUN_RECONCILING, E.OPERATION_CANCEL_REQUESTED, E.OPERATION_RECONCILED, E.RUN_FINISHED, E.RUN_CHILD_ANNOUNCED,
    }
)  # fmt: skip

# These stand for what only their writer tells of: they last before that, and need not before the lock is let go, so
# that those who write at once share a sync. Whatever follows from them elsewhere syncs the log first.
_SYNCED_BEHIND_THE_LOCK = frozenset({E.TOOL_REMOTE_ID, E.OPERATION_LATE_RESULT})

# Small files that whoever takes a lease needs next: the lease, the snapshot, more of the log, and one to spare.
_ROOM = 4


class RunDir(RunReader):
    """A run's directory, to be read and, under the session's lock, to be written."""

    # The fold up to a byte of the log; checked against the log's length before it is trusted.
    _run: Run | None = None
    _offset = 0
    # How much of the log is known to last. What stands behind it may be owed: then it is synced, and told of, when the
    # lock has been let go.
    _lasting = -1
    _is_owed = False
    _kept_back: tuple[Event, ...] = ()
    # How each line of the log begins.
    _line_beginning = ""
    # Told of every event that this handle appends or catches up with; for an executor that keeps them.
    on_event: Callable[[Event], None] | None = None

    @property
    def seen(self) -> Run:
        """The run as this handle last saw it under the lock."""
        assert self._run is not None
        return self._run

    def load(self) -> Run:
        """As any reader's, but what this handle has seen under the lock is not read again."""
        if self._run is not None and (self._known is None or self._known[1] < self._offset):
            self._known = self._run, self._offset
        return super().load()

    # --- writing, under the session's lock

    def current(self, held: Held) -> Run:
        """The run now, with the sentinel taken up if one lay there when this hold first looked."""
        return self._heeding_stop(self._caught_up(), held)

    def check_whole(self, held: Held) -> None:
        """Raises CorruptRecord if events of the run are damaged or lost.

        What they began is not known: an action that is begun again may happen twice.
        """
        run = self.current(held)
        unread = self.unread(run)
        trace = None if unread else self.trace_beyond(run)
        if unread or trace:
            path = self.events.path
            what = f"{unread} of its events cannot be read" if unread else f"events of it are not there, though {trace}"
            raise CorruptRecord(
                f"{path}: {what}; what they began is not known, so it does not go on",
                path=path,
                offset=self.events.damage[0].offset if self.events.damage else 0,
                hint=f"see what is damaged: agentrun check {self.session_id}\nend it with: agentrun cancel {self.name}",
            )

    def check_writable(self) -> None:
        """Raises NewerFormat if `run.json` is of a newer format, which must not be rewritten in this one."""
        check_replaceable(self.directory.read(layout.RUN), self.directory.at(layout.RUN))

    def has_news(self) -> bool:
        """Whether others may have written since this handle last looked; needs no lock and costs two system calls."""
        run = self._run
        return run is None or self.events.size() != self._offset or self.stop_is_asked(run)

    def append_as_anyone(self, held: Held, kind: EventType, payload: Doc) -> Run:
        """Appends an event that needs no lease. Raises TransitionRefused."""
        return self._append_to(self._caught_up(), kind, payload, held)

    def append(self, lease: Lease, held: Held, kind: EventType, payload: Doc, *, durable: bool = False) -> Run:
        """Appends an event of the lease holder. Raises FencedOut, TransitionRefused."""
        return self._append_to(self.check(lease, held), kind, payload, held, durable=durable)

    @property
    def lasts(self) -> bool:
        """Whether all that this handle has seen of the log lasts through a power cut."""
        return self._lasting == self._offset

    def settle(self) -> None:
        """Makes last what was left for behind the lock, and tells of it. Raises StorageFailed."""
        self._make_last()
        self._tell_kept_back()

    def check(self, lease: Lease, held: Held) -> Run:
        """The run now, if `lease` still is its lease. Raises FencedOut."""
        # Fenced or not is looked at first: taking up a sentinel writes.
        run = self._caught_up()
        if run.generation == lease.generation:
            run = self._heeding_stop(run, held)
        if run.generation != lease.generation:
            raise FencedOut(
                f"{self.name} was taken over (generation {run.generation}, this process holds {lease.generation})",
                hint=f"see what becomes of it with: agentrun show -f {self.name}",
                session_id=self.session_id,
                run_id=self.run_id,
            )
        return run

    def claim(self, held: Held, *, lease_seconds: float, timeout: float | None, fenced: Doc | None = None) -> Lease:
        """Takes the lease in the next generation; the caller holds the liveness lock and goes on to execute.

        The attempt is counted by that, durably, before it begins. `timeout` is the run's whole executing time in
        seconds; what was used before counts. `fenced` is the owner of the executor that has the lock instead.
        Raises CorruptRecord if it cannot be read what the run has begun already.
        """
        self.check_whole(held)
        lease = self._take_lease(held, lease_seconds, self.current(held).next_attempt, fenced)
        run = self.current(held)
        if run.status in (RunStatus.QUEUED, RunStatus.RECONCILING) and run.ending is None:
            from agentrun.store.deadlines import remaining_deadline

            timeout_at = remaining_deadline(run, timeout)
            started = {"inputMode": run.input_mode, "accountId": self.account, "timeoutAt": timeout_at}
            self._append_to(run, E.RUN_STARTED, started, held)
        return self._hold(lease, held)

    def take_over(self, held: Held, *, lease_seconds: float, fenced: Doc | None = None) -> Lease:
        """Takes the lease in the next generation to settle what an executor left that is gone. Executes nothing.

        So it begins no attempt: only what is executed can use them up. `fenced` is as for `claim`.
        """
        return self._hold(self._take_lease(held, lease_seconds, self.current(held).attempts, fenced), held)

    def renew(
        self, lease: Lease, held: Held, lease_seconds: float, executing_ms: int | None = None, *, locked: bool = False
    ) -> Lease:
        """Renews the lease, with the executing time that the run has used by now. Raises FencedOut."""
        from agentrun.store.deadlines import new_lease

        self.check(lease, held)
        spent = lease.executing_ms if executing_ms is None else executing_ms
        renewed = new_lease(lease.generation, lease.owner, lease_seconds, spent)._replace(locked=locked)
        self._write_lease(renewed)
        return renewed

    def write_snapshot(self, held: Held, *, durable: bool = True) -> None:
        """Writes `run.json` as the events tell it now."""
        data = encode_document(self._caught_up().to_doc())
        if durable:
            # It must not tell of an event that a power cut may still take away: its number will be given again.
            self._make_last()
        self.directory.replace(layout.RUN, data, durable=durable)

    def rewrite_snapshot(self, held: Held) -> None:
        """Writes `run.json` as all events tell it, whatever it says now; fields of other versions stay in it.

        A copy of one from which the events do not lead to what the run is now is kept.
        """
        self.check_writable()
        snapshot, run = self.snapshot(), self._fold_all()
        if snapshot is not None:
            run = run.with_unknown_of(snapshot)
        if snapshot is None or snapshot.fold(self.all_events()).known() != run.known():
            self._keep_aside(layout.RUN)
        self._run, self._offset = run, self.events.size()
        self.write_snapshot(held)

    def write_draft(self, lease: Lease, held: Held, text: str, *, fresh: bool) -> None:
        """Adds to the draft, or begins it anew. Not synced: a draft is never a delivery."""
        self.check(lease, held)
        data = text.encode("utf-8", "replace")
        if fresh:
            self.directory.replace(layout.DRAFT, data, durable=False)
        else:
            self.directory.append_bytes(layout.DRAFT, data)

    def write_blob(self, lease: Lease, held: Held, source: BinaryIO) -> Doc:
        """Keeps the rest of `source` under its hash, synced; returns `{sha256 bytes}`."""
        from agentrun.store.blobs import keep_blob

        self.check(lease, held)
        return keep_blob(self.directory, layout.BLOBS, source)

    def write_report(self, held: Held, report: Doc) -> None:
        """Puts the committed bytes in place as `report.md`, if they are not there yet; what lies there is kept."""
        import hashlib

        found = self.directory.read(layout.REPORT)
        if found is not None and hashlib.sha256(found).hexdigest() == report.get("sha256"):
            return
        committed = self.report_bytes(report)
        # It is not what was delivered, and not ours to throw away.
        self._keep_aside(layout.REPORT)
        self.directory.replace(layout.REPORT, committed)

    def write_sentinel(self, held: Held) -> None:
        """Leaves the cancel sentinel, durable; the intent is stored already."""
        if self.directory.stat(layout.CANCEL) is None:
            self.directory.replace(layout.CANCEL, b"")

    def keep_stale(self, lease: Lease, doc: Doc) -> None:
        """Keeps what a fenced executor still knew outside the run, for whoever settles it."""
        stale = self.session_directory.ensure(layout.STALE)
        stale.append_bytes(layout.stale_name(self.run_id, lease.generation), encode_line(doc))

    def end_lease(self, held: Held) -> None:
        """Removes `lease.json`: nobody holds the run any more."""
        self.directory.remove(layout.LEASE)

    # --- below

    def _take_lease(self, held: Held, lease_seconds: float, attempt: int, fenced: Doc | None) -> Lease:
        from agentrun.store.deadlines import new_lease
        from agentrun.store.identity import this_process

        run = self.current(held)
        # A takeover that could store no more than itself would be counted again and again, as long as the disk is full.
        self.directory.check_room(_ROOM)
        self.directory.make(layout.SCRATCH)  # what tools have put in its place is theirs, and in nobody's way
        for directory in (
            self.directory,
            self.session_directory.open(layout.RUNS),
            self.session_directory,
        ):
            directory.sync()
        # What a lost executor has used goes along until an event tells of it.
        spent = run.usage["executingMs"] + self.unrecorded_ms(run)
        lease = new_lease(run.generation + 1, this_process(), lease_seconds, spent)
        payload: Doc = {
            "owner": lease.owner.to_doc(),
            "previousGeneration": run.generation,
            "attempt": attempt,
            "expiresAt": lease.expires_at,
        } | ({"fenced": fenced} if fenced else {})
        self._append_to(self._caught_up(), E.RUN_LEASE_ACQUIRED, payload, held, generation=lease.generation)
        return lease

    def _hold(self, lease: Lease, held: Held) -> Lease:
        self._write_lease(lease)
        self.write_snapshot(held)
        return lease

    def _append_to(
        self,
        run: Run,
        kind: EventType,
        payload: Doc,
        held: Held,
        *,
        generation: int | None = None,
        durable: bool = False,
    ) -> Run:
        """Appends to the log that `run` was caught up with in this hold."""
        log = self.events
        seq = log.next_seq(self._offset)
        if seq <= run.applied_seq:
            seq = self._above_lost(run)
        under = run.generation if generation is None else generation
        event = Event(self.session_id, self.run_id, seq, kind.value, clock.timestamp(), under, payload)
        moved = run.apply(event)
        if seq != run.applied_seq + 1:
            # Damaged lines before it have numbers too. What the first event says is known from the prompt's line.
            unread = moved.unread_events + max(seq - max(run.applied_seq + 1, 2), 0)
            moved = moved._replace(unread_events=unread)
        log.append_line(event.to_line(self._line_beginning or self._beginning()), seq)
        self._run = moved
        self._offset = log.end
        # Nobody is told before it lasts: he may tell the user.
        if durable or kind in _ALWAYS_SYNCED:
            self.settle()
        elif kind in _SYNCED_BEHIND_THE_LOCK:
            self._is_owed = True
            held.owed += (self.settle,)
        if self.on_event is not None:
            self._tell(event)
        return moved

    def _above_lost(self, run: Run) -> int:
        """The number of the next event of a run of which the last events are lost: none of theirs is used again.

        Only the snapshot tells of them, and the next one is written over it: a copy stays.
        """
        self._keep_aside(layout.RUN)
        self.events.go_on_above(run.applied_seq)
        return self.events.next_seq()

    def _keep_aside(self, name: str) -> None:
        data = self.directory.read(name)
        if data is not None:
            from agentrun.store.aside import keep_aside  # here: hardly anything is to be kept

            keep_aside(self.directory, layout.damaged_name(name, 0), data)

    def _make_last(self) -> None:
        if not self.lasts:
            self.events.sync()
            self._lasting = self._offset
        self._is_owed = False

    def _tell(self, event: Event) -> None:
        """Tells of `event`, in the order of the log: behind what is kept back until it lasts."""
        if self.on_event is None:
            return
        if self._is_owed:
            self._kept_back += (event,)
        else:
            self.on_event(event)

    def _tell_kept_back(self) -> None:
        kept_back, self._kept_back = self._kept_back, ()
        for event in kept_back:
            self._tell(event)

    def _beginning(self) -> str:
        if not self._line_beginning:
            self._line_beginning = beginning_of(self.session_id, self.run_id)
        return self._line_beginning

    def _caught_up(self) -> Run:
        run = self._run
        if run is not None and self.events.size() == self._offset:
            return run
        return self._catch_up()

    def _catch_up(self) -> Run:
        if self._run is None:
            self.check_writable()
        # A torn tail gives way to the next record: a handle that had counted its bytes would begin to read in the
        # middle of that one, and miss it.
        self.events.next_seq()
        if self._run is None:
            self._run = self.load()
        else:
            later = [event for _, event in self.events.forward(self.event, self._offset)]
            self._run = self._run.fold(later)
            for event in later:
                self._tell(event)
        self._offset = self.events.size()
        return self._run

    def _heeding_stop(self, run: Run, held: Held) -> Run:
        if self.run_id not in held.looked_for_stop:
            held.looked_for_stop += (self.run_id,)
            if self.stop_is_asked(run):
                self._take_up_sentinel(held)
                run = self._caught_up()
        return run

    def _take_up_sentinel(self, held: Held) -> None:
        from agentrun.store.identity import user_name

        found = self.directory.stat(layout.CANCEL)
        assert found is not None  # it was there a moment ago, and only its run's end makes it meaningless
        actor = {"user": user_name(found.st_uid), "host": os.uname().nodename, "pid": None}
        payload = {
            "actor": actor,
            "reason": "asked by the cancel file",
            "intent": "cancel",
            "via": "sentinel",
        }
        self._append_to(self._caught_up(), E.RUN_CANCEL_REQUESTED, payload, held)

    def _write_lease(self, lease: Lease) -> None:
        # Not synced: the generation in the log is the fence, and after a power cut no executor is left.
        self.directory.replace(layout.LEASE, encode_document(lease.to_doc()), durable=False)
