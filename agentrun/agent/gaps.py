"""The gaps of a report: which calls gave no result, told from the record and not from the model's memory.

A query that failed must never be read as a zero, so agentrun writes this itself, whatever the model has written.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.agent.transcript import Transcript
from agentrun.records.codec import encode_line
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus as Status

HEADING = "## Gaps"
INTRODUCTION = "Written by agentrun from the record of this run. These calls gave no result; none of them is a zero."

REFUSED = "was refused"

# Characters of a call's arguments and of its error; all of both is in the record.
SHOWN = 200

_WORDS = {
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed out",
    Status.CANCELLED: "was stopped",
    Status.UNKNOWN: "nobody knows how it ended",
}


def with_gaps(report: str, transcript: Transcript) -> str:
    """The report as it is delivered: with a section at its end if a call of the run gave no result."""
    lines = [_line(call) for call in gaps(transcript)]
    if not lines:
        return report
    return "\n".join([report.rstrip("\n"), "", HEADING, "", INTRODUCTION, "", *lines, ""])


def gaps(transcript: Transcript) -> Iterator[Operation]:
    """The calls that gave no result although they were made.

    So is one that was refused. Any other that was never started asked nobody for anything. One that the model made
    again, the same, with success is no gap either, unless nobody knows what the first one did.
    """
    calls = [call for turn in transcript.turns for call in turn.calls]
    for number, call in enumerate(calls):
        if not (call.status in _WORDS or call.is_refused):
            continue
        again = any(_is_same(call, later) and later.status is Status.SUCCEEDED for later in calls[number + 1 :])
        if call.is_unresolved or not again:
            yield call


def _is_same(call: Operation, other: Operation) -> bool:
    return (call.name, call.arguments) == (other.name, other.arguments)


def _line(call: Operation) -> str:
    arguments = encode_line(call.arguments).decode("utf-8").rstrip("\n") if call.arguments else ""
    said = [f"* {call.operation_id} {call.name}"]
    said += [_short(arguments)] if arguments else []
    error = f": {_short(call.error)}" if call.error else ""
    remote = f" (remote id {_short(call.remote_id)})" if call.remote_id else ""
    unresolved = "; what it did outside is unresolved" if call.is_unresolved else ""
    return f"{' '.join(said)}: {_WORDS.get(call.status, REFUSED)}{error}{unresolved}{remote}"


def _short(text: str) -> str:
    """On one line, and short."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]} ..."
