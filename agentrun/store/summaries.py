"""The summary of a session's history on disk: read by whoever builds a context, replaced by a lease holder."""

from __future__ import annotations

from agentrun.records.codec import FORMAT_VERSION, decode, encode_document
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
        doc = decode(data) if data else None
        if doc is None or int(doc.get("formatVersion", 0)) > FORMAT_VERSION:
            return None
        summary = Summary.from_doc(doc)
    except (ValueError, TypeError):
        return None
    # One of another session was put there by hand, or copied: its numbers are those of other messages.
    return summary if summary.session_id == session.session_id else None


def write_summary(writer: Writer, lease: Lease, run_dir: RunDir, summary: Summary) -> None:
    """Replaces the summary, durable. Raises FencedOut."""
    run_dir.check(lease, writer)
    # What it covers must not be lost to a power cut that it survives.
    writer.session.messages.sync()
    writer.session.directory.replace(layout.SUMMARY, encode_document(summary.to_doc()))


def first_undelivered(writer: Writer) -> int | None:
    """The number of the oldest input that has reached no run yet, of whatever open run: no summary may cover it."""
    waiting: list[int] = []
    for run_dir in writer.newest_known_runs():
        run = run_dir.load()
        if not run.is_over:
            waiting += writer.undelivered_seqs(run)
    return min(waiting, default=None)
