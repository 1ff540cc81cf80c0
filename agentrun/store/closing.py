"""Ending a run: the event that commits the end, and everything that follows from it and can be done again.

Publishing looks before it writes, so that a second time changes nothing. The slot is freed last: as long as `active`
names the ended run, the next writer knows that something may be left to do.
"""

from __future__ import annotations

from itertools import islice

from agentrun.errors import TransitionRefused
from agentrun.records.codec import Doc
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store.runs import RunDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.lease import Lease

# Of what keeps a run from completing, so many are named: the newest.
_FEW = 3


def finish(
    writer: Writer,
    lease: Lease,
    run_dir: RunDir,
    end: RunStatus,
    *,
    reason: str | None = None,
    report: Doc | None = None,
    executing_ms: int = 0,
) -> Run:
    """Commits the end of a run and publishes it. Raises FencedOut, TransitionRefused.

    `report` names bytes that are in `blobs/` already (else CorruptRecord); `executing_ms` is what this stretch adds to
    the time used.
    """
    run = run_dir.check(lease, writer)
    if end is RunStatus.COMPLETED and run.ending is None and not run.is_over:
        _check_complete(writer, run_dir, run)
        if report is not None:
            run_dir.report_bytes(report)
    payload = _finished_payload(writer, run, end, reason, report, executing_ms)
    run = run_dir.append(lease, writer, EventType.RUN_FINISHED, payload)
    publish(writer, run_dir, run)
    return run


def stop(writer: Writer, run_dir: RunDir, payload: Doc) -> Run:
    """Stores an intent to stop a run that is open: the event, then the sentinel. A queued run is over with that.

    `payload` is that of `run.cancel_requested`. Returns the run as it is then.
    """
    run_dir.current(writer)
    run = run_dir.append_as_anyone(writer, EventType.RUN_CANCEL_REQUESTED, payload)
    if run.status is RunStatus.QUEUED:
        return finish_queued(writer, run_dir, run.reason)
    run_dir.write_sentinel(writer)
    run_dir.write_snapshot(writer)
    return run


def stop_interrupted(writer: Writer, prompt: Message) -> RunDir | None:
    """Stops the run that held the slot when `prompt` was accepted at the head of the queue, unless it stops already.

    The line of the prompt is the promise that it will be stopped: whoever wrote it may have died over that, and the
    next writer keeps it. Returns the run that was stopped now.
    """
    interrupted = writer.interrupted_by(prompt)
    if interrupted is None or not writer.session.has_run(interrupted):
        return None
    run_dir = writer.session.run(interrupted)
    run = run_dir.current(writer)
    if run.is_over or run.ending is not None:
        return None
    # Its writer may have died before the sync; the stop must not outlive it.
    writer.session.messages.sync()
    payload = {
        "actor": prompt.actor,
        "reason": f"interrupted by {prompt.run_id}",
        "intent": "interrupt",
        "via": "send",
    }
    stop(writer, run_dir, payload)
    return run_dir


def finish_queued(writer: Writer, run_dir: RunDir, reason: str | None) -> Run:
    """Ends a run that never started, without it ever being `cancelling`: that would hold a second slot."""
    run = run_dir.current(writer)
    payload = _finished_payload(writer, run, RunStatus.CANCELLED, reason, None, 0)
    run = run_dir.append_as_anyone(writer, EventType.RUN_FINISHED, payload)
    make_end_last(writer, run_dir, run)
    publish(writer, run_dir, run)
    return run


def make_end_last(writer: Writer, run_dir: RunDir, run: Run) -> None:
    """Syncs the end of a run that is in its log: whoever appended it may not have lived to do so."""
    run_dir.events.sync()
    if run.started_at is None:
        # Nobody has claimed it, so nothing made its directory last yet; a conversation that tells of an end without a
        # run is taken for damage.
        run_dir.directory.sync()
        writer.session.runs().sync()


def publish(writer: Writer, run_dir: RunDir, run: Run) -> None:
    """Does what follows from the end of `run`, as far as it has not been done."""
    from agentrun.store.resources import Resources  # here: every writer has this module, and few end a run

    writer.heed_numbers(run)
    if run.report is not None:
        run_dir.write_report(writer, run.report)
    if writer.closing_message(run) is None:
        _append_closing_message(writer, run_dir, run)
    run_dir.end_lease(writer)
    run_dir.write_snapshot(writer)
    Resources(writer.session).release_settled(writer, run_dir)
    if writer.session.active() == run.run_id:
        writer.free_slot()
    link_next(writer)


def link_next(writer: Writer) -> None:
    """Gives the slot to the run whose turn it is, if the slot is free and a run is open."""
    if writer.session.active() is not None:
        return
    waiting = writer.open_runs()
    if waiting:
        writer.take_slot(waiting[0].run_id)


def _check_complete(writer: Writer, run_dir: RunDir, run: Run) -> None:
    """Raises TransitionRefused if the run has something left to do. Whoever completes has looked; this is the gate."""
    waiting = (f"message {message.seq} is not delivered" for message in writer.undelivered_backward(run))
    left = list(islice(waiting, _FEW))[::-1]
    left += [f"{operation.operation_id} has not ended" for operation in run.open_operations]
    if left:
        words = f"{run_dir.name} cannot complete: {', '.join(left)}"
        raise TransitionRefused(words, session_id=run.session_id, run_id=run.run_id)


def _finished_payload(
    writer: Writer, run: Run, end: RunStatus, reason: str | None, report: Doc | None, executing_ms: int
) -> Doc:
    usage = dict(run.usage)
    usage["executingMs"] += executing_ms
    return {
        "terminalStatus": end.value,
        "reason": reason if reason is not None else run.reason,
        "report": report,
        "unresolvedOperations": [operation.operation_id for operation in run.unresolved_operations],
        "returnedInputs": [message.seq for message in writer.undelivered_backward(run)][::-1],
        "usage": usage,
        "executingMs": executing_ms,
    }


def _append_closing_message(writer: Writer, run_dir: RunDir, run: Run) -> None:
    if run.report is not None:
        writer.append_message(run.run_id, "assistant", REPORT, run_dir.report() or "")
    else:
        from agentrun.records.ending import how_it_ended

        writer.append_message(run.run_id, "system", ENDED, how_it_ended(run))
