"""The summary of a session's history on disk: read by whoever builds a context, replaced by a lease holder."""

from __future__ import annotations

from agentrun.errors import NewerFormat
from agentrun.records.codec import check_replaceable, check_version, decode, encode_document
from agentrun.records.lease import Lease
from agentrun.records.summary import Summary
from agentrun.store import layout
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


def read_summary(session: SessionDir) -> Summary | None:
    """The summary; None if there is none that can be used. Then the history, which is all there, is used instead."""
    data = session.directory.read(layout.SUMMARY)
    try:
        return summary_in(session, data) if data else None
    except (ValueError, NewerFormat):
        return None


def summary_in(session: SessionDir, data: bytes) -> Summary:
    """The summary of this session in `data`, what stands at its place.

    Raises ValueError if it is none that can be used, NewerFormat if it is of one that this version must not write.
    """
    doc = decode(data)
    check_version(doc, session.directory.at(layout.SUMMARY))
    summary = Summary.from_doc(doc)
    # One of another session was put there by hand, or copied: its numbers are those of other messages.
    if summary.session_id != session.session_id:
        raise ValueError(f"belongs to session {summary.session_id[:80]!r}")
    # What comes after it would be hidden, from the model and from everybody.
    last = session.messages.last_seq()
    if summary.message_seq > last:
        raise ValueError(f"covers message {summary.message_seq}, though the last one is {last}")
    return summary


def write_summary(writer: Writer, lease: Lease, run_dir: RunDir, summary: Summary) -> None:
    """Replaces the summary, durable. Raises FencedOut, NewerFormat."""
    run_dir.check(lease, writer)
    directory = writer.session.directory
    check_replaceable(directory.read(layout.SUMMARY), directory.at(layout.SUMMARY))
    # What it covers must not be lost to a power cut that it survives.
    writer.session.messages.sync()
    former = read_summary(writer.session)
    if former is not None:
        summary = summary._replace(extra=former.extra)
    directory.replace(layout.SUMMARY, encode_document(summary.to_doc()))


def first_undelivered(writer: Writer) -> int | None:
    """The number of the oldest input that has reached no run yet, of whatever open run: no summary may cover it."""
    still_open = (run for run in (run_dir.load() for run_dir in writer.newest_known_runs()) if not run.is_over)
    return min((message.seq for run in still_open for message in writer.undelivered_backward(run)), default=None)
