"""What shows that a run went further than its log tells: then events of it were lost, and it must not begin again.

A crash after the line of a prompt leaves no run, or one without events: those are made again. But nothing that is
looked for here is there before the lease is, and that is durable before anything follows from it; the end of a run is
durable before the conversation tells of it. So where one of these is found, the log was lost or cut short, and what it
said the run had done is not known.
"""

from __future__ import annotations

from agentrun.errors import Denied
from agentrun.records.message import QUESTION
from agentrun.store import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.run import Run
    from agentrun.store.disk import Directory
    from agentrun.store.reading import RunReader
    from agentrun.store.sessions import Said

# What only the holder of a lease makes; a damaged lease that was put aside tells as much as it did in its place.
_MADE_BY_EXECUTORS = (
    layout.LEASE, layout.damaged_name(layout.LEASE, 0), layout.REPORT, layout.DRAFT, layout.BLOBS,
)  # fmt: skip


def trace_beyond(run_dir: RunReader, run: Run, said: Said | None) -> str | None:
    """What shows that a run went further than `run`, which its events tell; None if nothing does."""
    if run.is_over:
        return None
    lease = run_dir.lease()
    if lease is not None and lease.generation > run.generation:
        return f"{layout.LEASE} is of generation {lease.generation}"
    if run_dir.directory.has(layout.REPORT):
        return f"there is a {layout.REPORT}"
    if run.generation == 0:
        found = _trace_of_executor(run_dir)
        if found is not None:
            return found
    word = said.last_word(run.message_seq) if said is not None else None
    if word is None or (word.mode == QUESTION and run.generation > 0):
        return None
    return f"message {word.seq} tells {'what it asked' if word.mode == QUESTION else 'how it ended'}"


def run_without_log(run_dir: RunReader, accepted: Run, said: Said) -> Run:
    """The run of which the log has no event, as `accepted` from its prompt; if traces say that there were some, lost.

    The end that the conversation tells is its end. Otherwise it was begun, and nobody knows what it did.
    """
    word = said.last_word(accepted.message_seq)
    if word is not None and word.mode != QUESTION:
        from agentrun.records.ending import end_told_by

        end = end_told_by(word)
        return accepted._replace(
            status=end, terminal_status=end, terminal_at=word.at, updated_at=word.at, applied_seq=1, unread_events=1
        )
    if run_dir.trace_beyond(accepted) is None and not said.is_left_behind():
        return accepted._replace(applied_seq=0)
    return as_begun(run_dir, accepted)


def as_begun(run_dir: RunReader, run: Run) -> Run:
    """`run` as one that was begun by events that are lost: nobody goes on with it, and a cancel winds it down."""
    from agentrun.states import RunStatus

    lease = run_dir.lease()
    status = RunStatus.RUNNING if run.status is RunStatus.QUEUED else run.status
    return run._replace(
        status=status,
        started_at=run.started_at or run.created_at,
        generation=max(run.generation, lease.generation if lease is not None else 0),
        unread_events=max(run.unread_events, 1),
    )


def _trace_of_executor(run_dir: RunReader) -> str | None:
    directory, session = run_dir.directory, run_dir.session_directory
    for name in _MADE_BY_EXECUTORS:
        if directory.has(name):
            return f"there is a {name}"
    # The scratch itself is made just before the lease is taken; what lies in it comes after.
    if directory.has(layout.SCRATCH) and not _is_empty(directory, layout.SCRATCH):
        return f"its {layout.SCRATCH} is not empty"
    if session.has(layout.STALE):
        notes = [name for name in session.open(layout.STALE).names() if name.startswith(f"{run_dir.run_id}.")]
        if notes:
            return f"there is a {layout.STALE}/{notes[0]}"
    return None


def _is_empty(directory: Directory, name: str) -> bool:
    try:
        return not directory.open(name).names()
    except Denied:
        return False  # a tool has closed it, or put something else there
