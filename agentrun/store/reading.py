"""Reading one run on disk: its events, the snapshot folded from them, who executes it, what it produced.

Takes no lock and writes nothing; `store.runs` adds what writes. Most runs are over and whole: what only others need is
loaded when one is met.
"""

from __future__ import annotations

from agentrun import ids
from agentrun.errors import CorruptRecord, NotFound
from agentrun.records.codec import LISTS, Doc, decode, decode_document, decode_in_brief
from agentrun.records.event import Event
from agentrun.records.run import Run, accepted_run, fold_run
from agentrun.records.views import RunView
from agentrun.states import TERMINAL, EventType, OperationStatus, RunStatus
from agentrun.store import layout
from agentrun.store.disk import Directory
from agentrun.store.log import Damage, Log, Torn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.records.lease import Lease
    from agentrun.records.views import Executor, Late
    from agentrun.store.sessions import Said

E = EventType
# As many events since the snapshot are read from the end; where there are more, from where the snapshot ends.
_FEW = 20
# So many inputs that a run ended without make the event that names them long.
_MANY = 1000


def slot_holder(session: Directory) -> str | None:
    """The id of the run that holds the slot of the session in this directory."""
    data = session.read_linked(layout.ACTIVE)
    text = data.decode("ascii", "replace").strip() if data else ""
    return text if ids.run_number(text) else None


class RunReader:
    """A run's directory. `said` is what the conversation says of the run, for when its log tells too little."""

    def __init__(
        self,
        account: str,
        session_id: str,
        run_id: str,
        session_directory: Directory,
        directory: Directory,
        said: Said | None,
    ) -> None:
        self.account = account
        self.session_id = session_id
        self.run_id = run_id
        self.session_directory = session_directory
        self.directory = directory
        self.events = Log(directory, layout.OPERATIONS)
        self._said = said
        # The fold up to a byte of the log; checked against the log's length before it is trusted.
        self._known: tuple[Run, int] | None = None

    @property
    def name(self) -> str:
        """`SESSION/RUN`, as commands take it."""
        return f"{self.session_id}/{self.run_id}"

    def load(self) -> Run:
        """The run now: the snapshot, and the events after it. Raises CorruptRecord if there is nothing to tell from.

        A handle that looks again goes on from where it was: who watches a run does not fold all of it at every look.
        """
        end = self.events.size()
        if self._known is None or end < self._known[1] or self.events.damage:
            run = self._load()
            # Behind a torn tail, or where events cannot be read, it would not know where to go on.
            is_certain = end > 0 and self.events.bytes_at(end - 1, 1) == b"\n" and not self.events.damage
            self._known = (run, end) if is_certain else None
            return run
        run, offset = self._known
        if end > offset:
            later = list(self.events.forward(self.event, offset))
            if later:
                run = run.fold(event for _, event in later)
                self._known = run, later[-1][0]
        return run

    def _load(self) -> Run:
        snapshot = self.snapshot()
        if snapshot is None:
            return self._fold_all()
        if len(snapshot.returned_inputs) > _MANY and self._tells_all(snapshot):
            return snapshot
        later: list[Event] = []
        newest = 0
        for event in self.events.backward(self.event):
            newest = event.seq
            if newest <= snapshot.applied_seq:
                break
            later.append(event)
            if len(later) == _FEW:
                from agentrun.store.bulk import records

                # None of them is kept: it may be ten thousand, with what each of them returned.
                start = self.events.offset_of(snapshot.applied_seq + 1)
                return snapshot.fold(records(self.events, self.event, self._many, start))
        if not later and newest != snapshot.applied_seq:
            return self._beyond_log(snapshot)
        return snapshot.fold(reversed(later))

    def _tells_all(self, snapshot: Run) -> bool:
        """Whether nothing stands behind what the snapshot tells of; asked where its last event is very long."""
        newest = next(self.events.backward(self.event, decode_in_brief), None)
        return newest is not None and newest.seq == snapshot.applied_seq

    def _beyond_log(self, snapshot: Run) -> Run:
        """The run whose log has no event that can be read as far as its snapshot tells.

        A snapshot is written after the events that it tells of, and lasts after them: events that it tells of and that
        are not there were lost. What it says of them is all that is known. (The first is known from the prompt.)
        """
        last = self.events.last_seq()
        lost = snapshot.applied_seq - max(last, 1)
        if lost <= 0:
            return self._fold_all() if last == 0 else snapshot
        run = snapshot
        if last > 0:
            try:
                told = self._fold_all()
            except CorruptRecord:
                told = snapshot
            if told.is_over:
                # The first terminal record is final, whatever else is told.
                run = told._replace(applied_seq=snapshot.applied_seq, extra=snapshot.extra)
        return run._replace(unread_events=max(snapshot.unread_events, lost))

    def snapshot(self) -> Run | None:
        """What `run.json` says; None if it is missing or no snapshot of this run."""
        data = self.directory.read(layout.RUN)
        try:
            run = Run.from_doc(*decode_document(data, LISTS)) if data else None
        except ValueError:
            return None
        if run and (run.account_id, run.session_id, run.run_id) != (
            self.account,
            self.session_id,
            self.run_id,
        ):
            return None
        return run

    def all_events(self) -> Iterator[Event]:
        """The run's events, oldest first."""
        from agentrun.store.bulk import records

        return records(self.events, self.event, self._many)

    def lasting_events(self, end: int | None = None) -> Iterator[Event]:
        """The same, but only what lasts through a power cut: for what is told to somebody. `end`: before that byte."""
        from agentrun.store.bulk import lasting_records

        return lasting_records(self.events, self.event, self._many, end=end)

    def every_entry(self) -> Iterator[tuple[int, Event | Damage | Torn]]:
        """Everything that stands in the run's log, each with the offset behind it."""
        from agentrun.store.bulk import entries

        return entries(self.events, self.event, self._many)

    def _many(self, lines: bytes) -> list[Event] | None:
        from agentrun.records.in_bulk import events_in  # here: see there

        return events_in(lines, self.session_id, self.run_id, self.event)

    def event(self, doc: Doc) -> Event:
        """The event in a decoded line of this run. Raises ValueError if it is none, or another run's."""
        event = Event.from_doc(doc)
        if (event.session_id, event.run_id) != (self.session_id, self.run_id):
            raise ValueError(f"belongs to {event.session_id[:80]}/{event.run_id[:80]}")
        return event

    def view(self) -> RunView:
        """The run as it stands, with what can only be seen from outside."""
        run = self.load()
        executor = self.executor_of(run)
        if executor == "lost":
            # The executor may have ended the run and left between the two looks.
            run = self.load()
            executor = self.executor_of(run)
        status = run.status
        if executor == "lost" and status is not RunStatus.CANCELLING:
            status = RunStatus.RECONCILING
            unread = self.unread(run) or (1 if self.trace_beyond(run) else 0)
            run = run._replace(unread_events=unread)
        overdue = self.is_used_up(run) if executor == "lost" else _is_overdue(run)
        if status is not RunStatus.QUEUED:
            late = self._lateness(run) if executor == "frozen" else None
            return RunView(run, status, executor, self.stop_is_asked(run), overdue, late=late)
        holder = self._said.front() if self._said is not None else slot_holder(self.session_directory)
        if holder is None or holder == self.run_id:
            return RunView(run, status, executor, self.stop_is_asked(run), overdue, unattended=executor == "none")
        ahead = self._executor_of(holder)
        lost, frozen = (holder if ahead == trouble else None for trouble in ("lost", "frozen"))
        return RunView(run, status, executor, self.stop_is_asked(run), overdue, lost_ahead=lost, frozen_ahead=frozen)

    def _lateness(self, run: Run) -> Late | None:
        from agentrun.store.lateness import lateness

        lease = self.lease_of(run)
        return lateness(self.session_directory, lease) if lease else None

    def _executor_of(self, run_id: str) -> Executor | None:
        """Who drives that run of the same session; None where that cannot be told."""
        try:
            directory = self.session_directory.open(layout.RUNS).open(run_id)
            other = RunReader(self.account, self.session_id, run_id, self.session_directory, directory, None)
            return other.executor_of(other.load())
        except (NotFound, CorruptRecord):
            return None

    def executor_of(self, run: Run) -> Executor:
        """Who drives `run`: `none` where nobody has to, `lost` where somebody should."""
        if run.is_over:
            return "none"
        if self.is_driven(run):
            from agentrun.store.deadlines import is_expired

            lease = self.lease_of(run)
            return "frozen" if lease is not None and is_expired(lease) else "alive"
        busy = any(operation.status is OperationStatus.RUNNING for operation in run.open_operations)
        idle = run.status is RunStatus.QUEUED or (run.status is RunStatus.WAITING_INPUT and not busy)
        # Of a run whose events are damaged nobody knows whether it was begun.
        return "none" if idle and not self.unread(run) else "lost"

    def unread(self, run: Run) -> int:
        """How many events of the run cannot be read and are told by no snapshot, those at the end included.

        The first does not count: the line of the prompt says the same.
        """
        return run.unread_events + max(self.events.last_seq() - max(run.applied_seq, 1), 0)

    def trace_beyond(self, run: Run) -> str | None:
        """What shows that the run went further than its events tell, which were lost then; None if nothing does."""
        from agentrun.store.traces import trace_beyond  # here: only asked of a run that nobody drives

        found = trace_beyond(self, run, self._said)
        # Somebody may have appended since `run` was read, and what was found followed from that.
        return found if self.events.last_seq() <= max(run.applied_seq, 1) else None

    def is_made(self) -> bool:
        """Whether its first event was appended, even if it is damaged or lost by now: else the next writer makes it."""
        if self.events.last_seq() > 0:
            return True
        try:
            return self.load().applied_seq > 0
        except CorruptRecord:
            return False

    def is_driven(self, run: Run) -> bool:
        """Whether some executor has the run: by its lock; where one was fenced out that kept that, by its lease."""
        from agentrun.store.locks import is_executor_alive

        has_lock = is_executor_alive(self.directory)
        return has_lock if run.fenced is None else self._is_had_by_lease(run, has_lock)

    def _is_had_by_lease(self, run: Run, has_lock: bool) -> bool:
        from agentrun.store.identity import is_gone

        lease = self.lease_of(run)
        if lease is None or run.lease_owner is None:
            # A lease that was given back waits for whoever was started to take it; who gave it back may have gone.
            return lease is not None
        # The lock may be free for a moment: the old one has let go, and the new one is about to take it.
        return (has_lock or not lease.locked) and not is_gone(lease.owner)

    def lease_of(self, run: Run) -> Lease | None:
        """The lease of the current generation, unless it was let go of."""
        lease = self.lease()
        return lease if lease is not None and lease.generation == run.generation else None

    def unrecorded_ms(self, run: Run) -> int:
        """Executing time, in milliseconds, that the executor had used by its last renewal and no event tells of.

        What it used after that went with it: at most the time between two renewals.
        """
        lease = self.lease_of(run)
        if lease is None:
            return 0
        return max(lease.executing_ms - int(run.usage["executingMs"]), 0)

    def is_used_up(self, run: Run) -> bool:
        """Whether a run that lost its executor has no executing time left; without one, no more of it is used."""
        spent = run.usage["executingMs"] + self.unrecorded_ms(run)
        return run.timeout is not None and spent >= run.timeout * 1000

    def stop_is_asked(self, run: Run) -> bool:
        """Whether a cancel sentinel lies there that has not become an intent yet."""
        return run.ending is None and run.status not in TERMINAL and self.directory.has(layout.CANCEL)

    def lease(self) -> Lease | None:
        """What `lease.json` says; None if it is missing or unreadable."""
        data = self.directory.read(layout.LEASE)
        from agentrun.records.lease import Lease

        try:
            return Lease.from_doc(decode(data)) if data else None
        except ValueError:
            return None

    def stale_notes(self) -> Iterator[Doc]:
        """What executors that were fenced out still knew of this run: `{type at payload}` each."""
        if self.session_directory.stat(layout.STALE) is None:
            return
        stale = self.session_directory.open(layout.STALE)
        # By what lies there: a generation that is damaged may be any number.
        for name in sorted(stale.names(), key=lambda each: (len(each), each)):
            if layout.is_stale_of(name, self.run_id):
                yield from (doc for _, doc in Log(stale, name).forward(lambda doc: doc))

    def report(self) -> str | None:
        """The delivered report; one that is committed but not in place yet is read from its blob."""
        data = self.directory.read(layout.REPORT)
        if data is None:
            committed = self.load().report
            data = self.blob(committed.get("sha256")) if committed else None
        return None if data is None else data.decode("utf-8", "replace")

    def report_bytes(self, report: Doc) -> bytes:
        """The bytes of a committed report. Raises CorruptRecord if they are not there, or others are."""
        data = self.blob(report.get("sha256"))
        if data is None:
            path = self.directory.at(layout.BLOBS)
            raise CorruptRecord(f"{path}/{report.get('sha256')}: the report's bytes are gone", path=path, offset=0)
        return data

    def draft(self) -> str:
        """What has been generated so far of the reply under way."""
        return (self.directory.read(layout.DRAFT) or b"").decode("utf-8", "replace")

    def blob(self, sha256: object) -> bytes | None:
        """The bytes kept under `sha256`, if they are there and are those."""
        from agentrun.store.blobs import read_blob

        return read_blob(self.directory, layout.BLOBS, sha256)

    def _fold_all(self) -> Run:
        run = self._told_by_events()
        if run.is_over or run.applied_seq == 0 or self.trace_beyond(run) is None:
            return run
        from agentrun.store.traces import as_begun

        return as_begun(self, run)

    def _told_by_events(self) -> Run:
        first = next(self.all_events(), None)
        if first is None or first.type != E.RUN_ACCEPTED:
            prompt = self._said.prompt() if self._said is not None else None
            if prompt is not None:
                from agentrun.records.acceptance import first_event

                # The message has accepted it. The event that follows from that is missing, and appended by the next
                # writer, or it is damaged or lost.
                begun = accepted_run(first_event(self.account, prompt))
                if first is None and self.events.last_seq() == 0:
                    return self._without_log(begun)
                run = begun._replace(applied_seq=0).fold(self.all_events())
                # That one event is known all the same.
                return run._replace(unread_events=max(run.unread_events - 1, 0))
        try:
            return fold_run(self.all_events())
        except ValueError as error:
            path = self.directory.at(layout.OPERATIONS)
            raise CorruptRecord(f"{path}: {error}", path=path, offset=0) from error

    def _without_log(self, accepted: Run) -> Run:
        from agentrun.store.traces import run_without_log  # here: a log that is not there is rare

        assert self._said is not None  # it has told of the prompt
        return run_without_log(self, accepted, self._said)


def _is_overdue(run: Run) -> bool:
    if run.is_over:
        return False
    from agentrun.store.deadlines import is_overdue

    return is_overdue(run)
