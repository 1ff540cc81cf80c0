"""One run looked over: its events, what was folded from them, and what it delivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from agentrun.errors import Denied, NewerFormat, TransitionRefused
from agentrun.records.codec import check_replaceable
from agentrun.records.event import Event
from agentrun.records.finding import Finding, Kind
from agentrun.records.run import Run, accepted_run
from agentrun.states import EventType
from agentrun.store import layout
from agentrun.store.blobs import hash_of, is_digest
from agentrun.store.check.records import look_at_kinds, look_at_log
from agentrun.store.disk import Directory
from agentrun.store.reading import slot_holder
from agentrun.store.runs import RunDir

_KNOWN = frozenset(
    {
        layout.RUN, layout.OPERATIONS, layout.REPORT, layout.DRAFT, layout.CANCEL, layout.LEASE, layout.SCRATCH,
        layout.BLOBS,
    }
)  # fmt: skip
_BEHIND = "does not show the run's end; the next writer makes it again"
_UNTOLD = "the conversation does not tell how the run ended"
_UNDELIVERED = "the delivered report is not in its place"


class _Replay:
    """The run as its events tell it, step by step, to be compared with what was written down of it."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run: Run | None = None
        self.snapshot = run_dir.snapshot()
        self.is_snapshot_true: bool | None = None
        self.refused: list[tuple[int, str]] = []
        self.blobs: dict[str, int] = {}
        # Of the events that name bytes by what is no hash: their numbers, and the fields.
        self.unnamed: list[tuple[int, str]] = []

    def keep(self, event: Event) -> None:
        """Takes the next event."""
        self._note_blobs(event)
        if self.run is None:
            if event.type == EventType.RUN_ACCEPTED:
                self.run = accepted_run(event)
        else:
            try:
                self.run = self.run.apply(event)
            except TransitionRefused as error:
                self.refused.append((event.seq, str(error)))
                self.run = self.run._replace(applied_seq=event.seq)
        if self.run and self.snapshot and self.run.applied_seq == self.snapshot.applied_seq:
            # Fields of other versions are in the snapshot alone.
            self.is_snapshot_true = self.snapshot.known().tells_as(self.run)

    def _note_blobs(self, event: Event) -> None:
        for name in ("blob", "report"):
            blob = event.payload.get(name)
            if not isinstance(blob, dict):
                continue
            digest = blob.get("sha256")
            if is_digest(digest):
                self.blobs[digest] = blob.get("bytes", 0)
            else:
                self.unnamed.append((event.seq, name))


def look_at_run(run_dir: RunDir, has_closing: bool) -> Iterator[Finding]:
    """What is wrong with a run. `has_closing` says whether the conversation tells how it ended."""
    replay = _Replay(run_dir)
    findings = [*look_at_log(run_dir.events, run_dir.every_entry(), lambda event: event.seq, replay.keep)]
    is_damaged = any(finding.kind in (Kind.DAMAGED, Kind.SET_ASIDE, Kind.GAP) for finding in findings)
    findings += look_at_blobs(run_dir.directory, layout.BLOBS, replay.blobs)
    findings += [
        Finding(Kind.DAMAGED, run_dir.events.path, f"event {seq}: its {name} names no bytes: sha256 is no SHA-256")
        for seq, name in replay.unnamed
    ]
    findings += look_at_kinds(run_dir.directory, (layout.SCRATCH,), (layout.DRAFT, layout.LEASE))
    findings += _look_at_lease(run_dir)
    run, lost = replay.run, _lost(run_dir, replay)
    if not lost and not is_damaged and run is not None:
        lost = _cut(run_dir, run)
    if lost or is_damaged:
        # Of a damaged record the snapshot knows more than can be read again, and what follows may only seem impossible.
        run = run_dir.load()
        findings += lost
    else:
        findings += _look_at_snapshot(run_dir, replay)
        findings += [
            Finding(Kind.IMPOSSIBLE, run_dir.events.path, f"event {seq}: {why}; it is passed over")
            for seq, why in replay.refused
        ]
    findings += _look_at_what_follows(run_dir, run, has_closing)
    if run is not None and _is_being_published(run_dir, run):
        findings = [*map(_as_half_done, findings)]
    findings += [
        Finding(Kind.ORPHAN, run_dir.directory.at(name), "is nothing that agentrun made")
        for name in sorted(run_dir.directory.names())
        if name not in _KNOWN and not layout.is_kept_aside(name)
    ]
    for finding in findings:
        yield finding._replace(session_id=run_dir.session_id, run_id=run_dir.run_id)


def lost_log(path: str) -> Finding:
    """The finding of a run that was begun and has no event any more; `path` is that of its log."""
    return Finding(Kind.MISSING, path, "its events are not there, though it was begun")


def _lost(run_dir: RunDir, replay: _Replay) -> list[Finding]:
    """Events that were there and are not there, with nothing in their place: what else is there tells of them."""
    path, last = run_dir.events.path, run_dir.events.last_seq()
    told = replay.snapshot.applied_seq if replay.snapshot else 0
    if told > max(last, 1):
        which = f"event {told} is" if told == last + 1 else f"events {last + 1} to {told} are"
        return [Finding(Kind.MISSING, path, f"{which} not there, though {layout.RUN} tells of them")]
    if last == 0:
        return [lost_log(path)] if run_dir.is_made() else []
    return []


def _cut(run_dir: RunDir, run: Run) -> list[Finding]:
    """As `_lost`, of a run whose events, all that there are, tell of `run`."""
    trace = run_dir.trace_beyond(run)
    if trace is None:
        return []
    said = f"events behind number {run.applied_seq} are not there, though {trace}"
    return [Finding(Kind.MISSING, run_dir.events.path, said)]


def look_at_blobs(parent: Directory, folder: str, names: Iterable[str]) -> Iterator[Finding]:
    """Whether the bytes that records name are there and are those."""
    path = parent.at(folder)
    try:
        blobs = parent.open(folder) if parent.stat(folder) else None
    except Denied as error:
        yield Finding(Kind.UNREADABLE, path, error.message.removeprefix(f"{path}: "))
        return
    for name in names:
        try:
            found = hash_of(blobs, name) if blobs else None
        except Denied as error:
            yield Finding(Kind.UNREADABLE, f"{path}/{name}", error.message.removeprefix(f"{path}/{name}: "))
            continue
        if found is None:
            yield Finding(Kind.MISSING, f"{path}/{name}", "a record names these bytes, and they are not there")
        elif found != name:
            yield Finding(Kind.DAMAGED, f"{path}/{name}", "its bytes are not those that its name promises", 0)


def _look_at_lease(run_dir: RunDir) -> Iterator[Finding]:
    path = run_dir.directory.at(layout.LEASE)
    with suppress(Denied):  # what is no file is told already
        data = run_dir.directory.read(layout.LEASE)
        if data is None or run_dir.lease() is not None:
            return
        try:
            check_replaceable(data, path)
        except NewerFormat as error:
            yield Finding(Kind.NEWER, path, error.message)
            return
        yield Finding(Kind.DAMAGED, path, "is no lease; the next executor writes its own")


def _look_at_snapshot(run_dir: RunDir, replay: _Replay) -> Iterator[Finding]:
    run, path = replay.run, run_dir.directory.at(layout.RUN)
    if run is None:
        return
    try:
        run_dir.check_writable()
    except NewerFormat as error:
        yield Finding(Kind.NEWER, path, error.message)
        return
    if replay.snapshot is None and run.applied_seq == 1:
        # It is not waited for when a run is accepted, so a crash leaves none, and a power cut half of one.
        yield Finding(Kind.RUN, path, "was not written yet; whoever begins the run writes it")
    elif replay.snapshot is None:
        yield Finding(Kind.SNAPSHOT, path, "is no snapshot of this run")
    elif replay.is_snapshot_true is False:
        yield Finding(Kind.SNAPSHOT, path, f"is not what the events tell up to number {replay.snapshot.applied_seq}")
    elif replay.is_snapshot_true is None and replay.snapshot.applied_seq > run.applied_seq:
        yield Finding(Kind.SNAPSHOT, path, f"tells of event {replay.snapshot.applied_seq}, which is not there")
    elif run.is_over and not replay.snapshot.is_over:
        yield Finding(Kind.SNAPSHOT, path, _BEHIND)


def _is_being_published(run_dir: RunDir, run: Run) -> bool:
    """Whether the next writer sees that something may be left to do for the end of the run."""
    return run.is_over and (run.started_at is None or slot_holder(run_dir.session_directory) == run_dir.run_id)


def _as_half_done(finding: Finding) -> Finding:
    """What is not there yet is no damage, but for what lies in its place."""
    return finding._replace(kind=Kind.RUN) if finding.said in (_BEHIND, _UNTOLD, _UNDELIVERED) else finding


def _look_at_what_follows(run_dir: RunDir, run: Run | None, has_closing: bool) -> Iterator[Finding]:
    if run is None:
        yield Finding(Kind.RUN, run_dir.events.path, "the run's first event is not there")
        return
    if run.is_over and not has_closing:
        yield Finding(Kind.PUBLICATION, run_dir.directory.path, _UNTOLD)
    yield from _look_at_report(run_dir, run)


def _look_at_report(run_dir: RunDir, run: Run) -> Iterator[Finding]:
    found, path = hash_of(run_dir.directory, layout.REPORT), run_dir.directory.at(layout.REPORT)
    if run.report is None:
        if found is not None:
            yield Finding(Kind.IMPOSSIBLE, path, "the run delivered no report")
    elif found is None:
        yield Finding(Kind.PUBLICATION, path, _UNDELIVERED)
    elif found != run.report.get("sha256"):
        yield Finding(Kind.PUBLICATION, path, "is not the report that was delivered")
