"""The words of the session's own message about how a run ended, and what can be read out of them again."""

from __future__ import annotations

from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.run import Run
from agentrun.states import RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentrun.records.codec import Doc

# Inputs that a run ended without are listed up to so many, the newest: the list is in each document that tells of the
# run. Which others there were is told by the messages, of which those that were delivered are known.
MOST_RETURNED = 10_000
# In words, for a person and for the model.
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
        last = ", ".join(map(str, run.returned_inputs[-_MOST_SAID:]))
        is_all = run.returned_count <= _MOST_SAID
        said += f"\nnot delivered: {'message' if is_all else f'{run.returned_count} messages, the last ones'} {last}"
    return said


def returned_fields(newest_first: Iterable[int]) -> Doc:
    """What `run.finished` tells of the inputs that the run ended without; memory does not grow with their number."""
    listed: list[int] = []
    count = 0
    for seq in newest_first:
        count += 1
        if count <= MOST_RETURNED:
            listed.append(seq)
    return {"returnedInputs": listed[::-1]} | ({"returnedCount": count} if count > len(listed) else {})


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
