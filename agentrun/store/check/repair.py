"""Putting right what can be made again from the records, and keeping aside what cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agentrun.errors import AgentrunError, CorruptRecord, StorageFailed
from agentrun.records.finding import Finding, Kind
from agentrun.store import closing, inbox, layout
from agentrun.store.aside import keep_aside
from agentrun.store.blobs import hash_of, is_digest
from agentrun.store.check.conversation import look_at_session
from agentrun.store.check.document import restore_document
from agentrun.store.check.set_aside import set_aside
from agentrun.store.log import Log
from agentrun.store.redo import make_run_again, writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


def repair_session(session: SessionDir, on_refusal: Callable[[AgentrunError], None]) -> Iterator[Finding]:
    """As `look_at_session`, with what could be put right marked as repaired.

    Damage may have hidden other damage: what shows behind it is put right as well. The first error for which something
    could not be, other than by its damage, is told: a disk's before any other.
    """
    found, left = list(look_at_session(session)), []
    refusals: list[AgentrunError] = []
    for _ in range(_PASSES):
        if not any(finding.kind in _REPAIRABLE for finding in found):
            break
        refusals += _repair_all(session, found)
        now = list(look_at_session(session.another()))
        yield from (finding._replace(is_repaired=True) for finding in found if finding not in now)
        left += [finding for finding in found if finding in now]
        # (Bytes that were put aside just now are told of as damage that was repaired.)
        found = [finding for finding in now if finding not in left and finding.kind is not Kind.SET_ASIDE]
    yield from (*left, *found)
    if refusals:
        on_refusal(min(refusals, key=lambda error: not isinstance(error, StorageFailed)))


def _repair_all(session: SessionDir, found: Iterable[Finding]) -> Iterator[AgentrunError]:
    """Puts right what can be. What is refused stays a finding; that of damage says what is wrong itself."""
    try:
        restore_document(session)
        with writing(session) as writer:
            # Taking the lock that way has completed what the last writer left half done.
            session.messages.next_seq()
            for finding in found:
                try:
                    _repair(writer, finding)
                except CorruptRecord:
                    continue
                except AgentrunError as error:
                    yield error
    except CorruptRecord:
        return
    except AgentrunError as error:
        yield error


def _repair(writer: Writer, finding: Finding) -> None:
    run_id = finding.run_id
    if finding.kind is Kind.DAMAGED and finding.length is not None:
        _keep_aside(_log_of(writer.session, run_id), finding)
    elif set_aside(writer, finding):
        return
    elif finding.kind is Kind.KEY:
        _remember_keys(writer)
    elif finding.kind is Kind.RUN and run_id is not None:
        make_run_again(writer, run_id)
        writer.session.run(run_id).write_snapshot(writer)
    elif finding.kind is Kind.TORN and run_id is not None:
        writer.session.run(run_id).events.next_seq()
    elif finding.kind is Kind.SNAPSHOT and run_id is not None:
        writer.session.run(run_id).rewrite_snapshot(writer)
    elif finding.kind in (Kind.DAMAGED, Kind.MISSING) and run_id is not None:
        _restore_report(writer.session.run(run_id))
    elif finding.kind is Kind.PUBLICATION and run_id is not None:
        _publish(writer, writer.session.run(run_id))


def _publish(writer: Writer, run_dir: RunDir) -> None:
    run = run_dir.current(writer)
    run_dir.events.sync()
    closing.publish(writer, run_dir, run)


def _restore_report(run_dir: RunDir) -> None:
    """Takes the committed bytes of the report from where they were delivered, if they are whole there."""
    report = run_dir.load().report
    name = report.get("sha256") if report is not None else None
    if not is_digest(name) or hash_of(run_dir.directory, layout.REPORT) != name:
        return
    blobs = run_dir.directory.ensure(layout.BLOBS)
    damaged = blobs.read(name)
    if damaged is not None:
        if hash_of(blobs, name) == name:
            return  # it is about other bytes
        keep_aside(blobs, layout.damaged_name(name, 0), damaged)
    blobs.replace(name, run_dir.directory.read(layout.REPORT) or b"")


def _keep_aside(log: Log, finding: Finding) -> None:
    assert finding.offset is not None
    assert finding.length is not None
    data = log.bytes_at(finding.offset, finding.length)
    keep_aside(log.directory, layout.damaged_name(log.name, finding.offset), data)


def _log_of(session: SessionDir, run_id: str | None) -> Log:
    return session.run(run_id).events if run_id else session.messages


def _remember_keys(writer: Writer) -> None:
    for message in writer.session.messages_backward():
        if message.key is not None and inbox.seq_of_key(writer.session, message.key) != message.seq:
            inbox.remember_key(writer, message.key, message.seq)


# More than damage can lie behind damage; somebody who breaks things as fast as they are repaired is not waited for.
_PASSES = 4

_REPAIRABLE = frozenset(
    {
        Kind.DAMAGED,
        Kind.MISSING,
        Kind.UNREADABLE,
        Kind.KEY,
        Kind.RUN,
        Kind.TORN,
        Kind.SNAPSHOT,
        Kind.PUBLICATION,
        Kind.SLOT,
    }
)
