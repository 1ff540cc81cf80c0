"""What the checks of a draft have said of it, read from the record; `agent.checks` makes them."""

from __future__ import annotations

from agentrun.agent.turn import Turn
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus as Status

# Ends that say something of the draft. Any other check has to be made again, unless the user cancelled it.
_VERDICTS = (Status.SUCCEEDED, Status.FAILED, Status.TIMED_OUT)


def failed_checks(turn: Turn) -> list[Operation]:
    """The checks that the reply of `turn` did not pass: what the model has to be told."""
    newest = {check.name: check for check in turn.checks if is_verdict(check)}
    return [check for check in newest.values() if check.status is not Status.SUCCEEDED]


def is_verdict(check: Operation) -> bool:
    """Whether the check says something of the draft, or was cancelled by the user."""
    return check.status in _VERDICTS or (check.cancel_requested_at is not None and not check.is_open)
