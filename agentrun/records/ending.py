"""The words of the session's own message about how a run ended, and what can be read out of them again."""

from __future__ import annotations

from agentrun.records.codec import Seqs
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.run import Run
from agentrun.states import RunStatus

# So many of the inputs that a run ended without are named in words, for a person and for the next model's context; the
# record names them all.
_MOST_SAID = 20


def how_it_ended(run: Run) -> str:
    """The words of the session's own message about a run that ended without a report."""
    said = f"{run.run_id} {_WORDS[run.status]}"
    if run.reason:
        said += f": {run.reason}"
    for operation in run.unresolved_operations:
        remote = f", remote id {operation.remote_id}" if operation.remote_id else ""
        resource = f", resource {operation.resource}" if operation.resource else ""
        said += f"\nunresolved: {operation.operation_id} {operation.name} ({operation.status.value}{remote}{resource})"
    if run.returned_inputs:
        last = ", ".join(map(str, Seqs(run.returned_inputs).last(_MOST_SAID)))
        count = len(run.returned_inputs)
        said += f"\nnot delivered: {'message' if count <= _MOST_SAID else f'{count} messages, the last ones'} {last}"
    return said


def end_told_by(closing: Message) -> RunStatus:
    """How the run of a closing message ended. Only asked where no record of the run itself is left."""
    if closing.mode == REPORT:
        return RunStatus.COMPLETED
    assert closing.mode == ENDED
    for status, words in _WORDS.items():
        if closing.text.startswith(f"{closing.run_id} {words}"):
            return status
    return RunStatus.FAILED


_WORDS = {
    RunStatus.COMPLETED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "was cancelled",
    RunStatus.TIMED_OUT: "timed out",
}
