"""One run on disk: its events, the snapshot folded from them, its lease and what it produced.

Whatever an executor writes goes through `append` and its neighbours with the lease as first argument: they run under
the session's lock and refuse a lease that is not of the current generation, so a fenced executor writes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from agentrun import clock
from agentrun.errors import CorruptRecord, FencedOut
from agentrun.records.acceptance import first_event
from agentrun.records.codec import Doc, check_version, decode, encode_document, encode_line
from agentrun.records.event import Event
from agentrun.records.lease import Lease
from agentrun.records.message import Message
from agentrun.records.run import Run, accepted_run, fold_run
from agentrun.records.views import Executor, RunView
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import layout
from agentrun.store.deadlines import is_expired, is_overdue, new_lease, remaining_deadline
from agentrun.store.disk import Directory
from agentrun.store.identity import this_process, user_name
from agentrun.store.locks import Held, is_executor_alive
from agentrun.store.log import Log

E = EventType

# These change the status or stand for something that was told to somebody: they last before the lock is let go.
_ALWAYS_SYNCED = frozenset(
    {
        E.RUN_LEASE_ACQUIRED, E.RUN_STARTED, E.MODEL_REQUEST_STARTED, E.TOOL_REMOTE_ID, E.RUN_WAITING_INPUT,
        E.RUN_INPUT_RECEIVED, E.RUN_COMPACTING, E.RUN_COMPACTED, E.RUN_CANCEL_REQUESTED, E.RUN_FAILING,
        E.RUN_RECONCILING, E.OPERATION_CANCEL_REQUESTED, E.OPERATION_RECONCILED, E.OPERATION_LATE_RESULT,
        E.RUN_FINISHED,
    }
)  # fmt: skip
_COPY = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RunDir:
    """A run's directory. `prompt` finds the message that began the run, for when nothing else is there yet."""

    def __init__(
        self,
        account: str,
        session_id: str,
        run_id: str,
        session_directory: Directory,
        directory: Directory,
        prompt: Callable[[], Message | None],
    ) -> None:
        self.account = account
        self.session_id = session_id
        self.run_id = run_id
        self.session_directory = session_directory
        self.directory = directory
        self.events = Log(directory, layout.OPERATIONS)
        self._prompt = prompt
        # The fold up to a byte of the log; checked against the log's length before it is trusted.
        self._run: Run | None = None
        self._offset = 0
        # Told of every event that this handle appends or catches up with; for an executor that keeps them.
        self.on_event: Callable[[Event], None] | None = None

    @property
    def name(self) -> str:
        """`SESSION/RUN`, as commands take it."""
        return f"{self.session_id}/{self.run_id}"

    @property
    def seen(self) -> Run:
        """The run as this handle last saw it under the lock."""
        assert self._run is not None
        return self._run

    # --- reading, without a lock

    def load(self) -> Run:
        """The run now: the snapshot, and the events after it. Raises CorruptRecord if there is nothing to tell from."""
        snapshot = self.snapshot()
        if snapshot is None:
            return self._fold_all()
        later: list[Event] = []
        for event in self.events.backward(self.event):
            if event.seq <= snapshot.applied_seq:
                if not later and self.events.last_seq() < snapshot.applied_seq:
                    break
                return snapshot.fold(reversed(later))
            later.append(event)
        # The log ends before the snapshot does, or is damaged there: the record counts, not the snapshot.
        return self._fold_all()

    def snapshot(self) -> Run | None:
        """What `run.json` says; None if it is missing or no snapshot of this run."""
        data = self.directory.read(layout.RUN)
        try:
            run = Run.from_doc(decode(data)) if data else None
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
        return (event for _, event in self.events.forward(self.event))

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
        if executor == "lost" and status in (
            RunStatus.RUNNING,
            RunStatus.COMPACTING,
            RunStatus.WAITING_INPUT,
        ):
            status = RunStatus.RECONCILING
        return RunView(run, status, executor, stop_asked=self.stop_is_asked(run), overdue=is_overdue(run))

    def executor_of(self, run: Run) -> Executor:
        """Who drives `run`: `none` where nobody has to, `lost` where somebody should."""
        if run.is_over:
            return "none"
        if is_executor_alive(self.directory):
            lease = self.lease()
            lapsed = lease is not None and lease.generation == run.generation and is_expired(lease)
            return "frozen" if lapsed else "alive"
        busy = any(operation.status is OperationStatus.RUNNING for operation in run.open_operations)
        idle = run.status is RunStatus.QUEUED or (run.status is RunStatus.WAITING_INPUT and not busy)
        return "none" if idle else "lost"

    def stop_is_asked(self, run: Run) -> bool:
        """Whether a cancel sentinel lies there that has not become an intent yet."""
        return not run.is_over and run.ending is None and self.directory.stat(layout.CANCEL) is not None

    def lease(self) -> Lease | None:
        """What `lease.json` says; None if it is missing or unreadable."""
        data = self.directory.read(layout.LEASE)
        try:
            return Lease.from_doc(decode(data)) if data else None
        except ValueError:
            return None

    def report(self) -> str | None:
        """The delivered report; one that is committed but not in place yet is read from its blob."""
        data = self.directory.read(layout.REPORT)
        if data is None:
            committed = self.load().report
            data = self.blob(committed["sha256"]) if committed else None
        return None if data is None else data.decode("utf-8", "replace")

    def draft(self) -> str:
        """What has been generated so far of the reply under way."""
        return (self.directory.read(layout.DRAFT) or b"").decode("utf-8", "replace")

    def blob(self, sha256: str) -> bytes | None:
        """The bytes kept under `sha256`, if they are there and are those."""
        if not _SHA256.fullmatch(sha256):
            return None  # a stored field is no path
        if self.directory.stat(layout.BLOBS) is None:
            return None
        data = self.directory.open(layout.BLOBS).read(sha256)
        return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None

    # --- writing, under the session's lock

    def current(self, held: Held) -> Run:
        """The run now, with the sentinel taken up if one lies there."""
        run = self._caught_up()
        if self.stop_is_asked(run):
            self._take_up_sentinel()
            run = self._caught_up()
        return run

    def has_news(self) -> bool:
        """Whether others may have written since this handle last looked; needs no lock and costs two system calls."""
        run = self._run
        return run is None or self.events.size() != self._offset or self.stop_is_asked(run)

    def append_as_anyone(self, held: Held, kind: EventType, payload: Doc) -> Run:
        """Appends an event that needs no lease. Raises TransitionRefused."""
        return self._append(kind, payload)

    def append(self, lease: Lease, held: Held, kind: EventType, payload: Doc, *, durable: bool = False) -> Run:
        """Appends an event of the lease holder. Raises FencedOut, TransitionRefused."""
        self.check(lease, held)
        return self._append(kind, payload, durable=durable)

    def check(self, lease: Lease, held: Held) -> Run:
        """The run now, if `lease` still is its lease. Raises FencedOut."""
        # Fenced or not is looked at first: taking up a sentinel writes.
        run = self._caught_up()
        if run.generation == lease.generation:
            run = self.current(held)
        if run.generation != lease.generation:
            raise FencedOut(
                f"{self.name} was taken over (generation {run.generation}, this process holds {lease.generation})",
                hint=f"see what becomes of it with: agentrun show -f {self.name}",
                session_id=self.session_id,
                run_id=self.run_id,
            )
        return run

    def claim(self, held: Held, *, lease_seconds: float, timeout: float | None) -> Lease:
        """Takes the lease in the next generation; the caller holds the liveness lock and goes on to execute.

        `timeout` is the run's whole executing time in seconds; what was used before counts.
        """
        run = self.current(held)
        self.directory.ensure(layout.SCRATCH)
        for directory in (
            self.directory,
            self.session_directory.open(layout.RUNS),
            self.session_directory,
        ):
            directory.sync()
        lease = new_lease(run.generation + 1, this_process(), lease_seconds)
        payload: Doc = {
            "owner": lease.owner.to_doc(),
            "previousGeneration": run.generation,
            "attempt": run.next_attempt,
            "expiresAt": lease.expires_at,
        }
        run = self._append(E.RUN_LEASE_ACQUIRED, payload, generation=lease.generation)
        if run.status in (RunStatus.QUEUED, RunStatus.RECONCILING) and run.ending is None:
            timeout_at = remaining_deadline(run, timeout)
            started = {"inputMode": run.input_mode, "accountId": self.account, "timeoutAt": timeout_at}
            run = self._append(E.RUN_STARTED, started)
        self._write_lease(lease)
        self.write_snapshot(held)
        return lease

    def renew(self, lease: Lease, held: Held, lease_seconds: float) -> Lease:
        """Renews the lease. Raises FencedOut."""
        self.check(lease, held)
        renewed = new_lease(lease.generation, lease.owner, lease_seconds)
        self._write_lease(renewed)
        return renewed

    def write_snapshot(self, held: Held, *, durable: bool = True) -> None:
        """Writes `run.json` as the events tell it now."""
        data = encode_document(self._caught_up().to_doc())
        self.directory.replace(layout.RUN, data, durable=durable)

    def rewrite_snapshot(self, held: Held) -> None:
        """Writes `run.json` as all events tell it, whatever it says now."""
        self._run = self._fold_all()
        self._offset = self.events.size()
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
        self.check(lease, held)
        blobs = self.directory.ensure(layout.BLOBS)
        start = source.tell()
        digest, size = hashlib.sha256(), 0
        while chunk := source.read(_COPY):
            digest.update(chunk)
            size += len(chunk)
        name = digest.hexdigest()
        if blobs.stat(name) is None:
            source.seek(start)
            blobs.replace_from(name, source)
            self.directory.sync()
        return {"sha256": name, "bytes": size}

    def write_report(self, held: Held, report: Doc) -> None:
        """Puts the committed bytes in place as `report.md`, if they are not there yet."""
        found = self.directory.read(layout.REPORT)
        if found is not None and hashlib.sha256(found).hexdigest() == report["sha256"]:
            return
        data = self.blob(report["sha256"])
        if data is None:
            path = self.directory.at(layout.BLOBS)
            raise CorruptRecord(f"{path}/{report['sha256']}: the report's bytes are gone", path=path, offset=0)
        self.directory.replace(layout.REPORT, data)

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

    def _append(self, kind: EventType, payload: Doc, *, generation: int | None = None, durable: bool = False) -> Run:
        run = self._caught_up()
        event = Event(
            self.session_id, self.run_id, run.applied_seq + 1, kind.value, clock.timestamp(),
            run.generation if generation is None else generation, payload,
        )  # fmt: skip
        moved = run.apply(event)
        doc = self.events.append(lambda seq: event._replace(seq=seq).to_doc())
        self._run = moved._replace(applied_seq=doc["seq"])
        self._offset = self.events.size()
        if durable or kind in _ALWAYS_SYNCED:
            self.events.sync()
        # Not before it lasts: whoever is told of it may tell the user.
        if self.on_event:
            self.on_event(event._replace(seq=doc["seq"]))
        return self._run

    def _caught_up(self) -> Run:
        if self._run is not None and self.events.size() == self._offset:
            return self._run
        if self._run is None:
            self._check_version()
        # A torn tail gives way to the next record: a handle that had counted its bytes would begin to read in the
        # middle of that one, and miss it.
        self.events.next_seq()
        if self._run is None:
            self._run = self.load()
        else:
            later = [event for _, event in self.events.forward(self.event, self._offset)]
            self._run = self._run.fold(later)
            for event in later if self.on_event else ():
                self.on_event(event)  # type: ignore[misc]
        self._offset = self.events.size()
        return self._run

    def _check_version(self) -> None:
        """Raises Denied if `run.json` is of a newer format, which must not be rewritten in this one."""
        data = self.directory.read(layout.RUN)
        try:
            doc = decode(data) if data else {}
        except ValueError:
            return  # no snapshot at all, and made anew
        check_version(doc, self.directory.at(layout.RUN))

    def _take_up_sentinel(self) -> None:
        found = self.directory.stat(layout.CANCEL)
        assert found is not None  # it was there a moment ago, and only its run's end makes it meaningless
        actor = {"user": user_name(found.st_uid), "host": os.uname().nodename, "pid": None}
        payload = {
            "actor": actor,
            "reason": "asked by the cancel file",
            "intent": "cancel",
            "via": "sentinel",
        }
        self._append(E.RUN_CANCEL_REQUESTED, payload)

    def _write_lease(self, lease: Lease) -> None:
        # Not synced: the generation in the log is the fence, and after a power cut no executor is left.
        self.directory.replace(layout.LEASE, encode_document(lease.to_doc()), durable=False)

    def _fold_all(self) -> Run:
        first = next(self.all_events(), None)
        if first is None or first.type != E.RUN_ACCEPTED:
            prompt = self._prompt()
            if prompt is not None:
                # The message has accepted it. The event that follows from that is missing, and appended by the next
                # writer, or damaged.
                begun = accepted_run(first_event(self.account, prompt))
                return begun._replace(applied_seq=0).fold(self.all_events())
        try:
            return fold_run(self.all_events())
        except ValueError as error:
            path = self.directory.at(layout.OPERATIONS)
            raise CorruptRecord(f"{path}: {error}", path=path, offset=0) from error
