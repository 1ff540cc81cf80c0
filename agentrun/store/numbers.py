"""Which numbers the lines of a log have, or had before they were damaged or lost: none of them is given out again."""

from __future__ import annotations

from agentrun.records.codec import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.run import Run


def seq_of(line: bytes) -> int | None:
    """The number of a line; None if it has none that can be read."""
    try:
        seq = decode(line).get("seq")
    except ValueError:
        return None
    return seq if type(seq) is int and seq > 0 else None


def last_begun(damaged: bytes) -> int:
    """The highest number of the records that begin in a damaged line, at its start or behind a NUL byte; 0 for none."""
    import re  # here: hardly any log is damaged

    heads = re.findall(rb'(?:^|\0)\{(?:"sessionId":"[^"]*","runId":"[^"]*",)?"seq":([1-9][0-9]{0,14}),', damaged)
    return max(map(int, heads), default=0)


def is_overwritten(tail: bytes) -> bool:
    """Whether these are whole records, each with a NUL byte where its newline was: no append leaves that behind."""
    *records, rest = tail.split(b"\0")
    return bool(records) and not rest and all(seq_of(record) is not None for record in records)


def newest_message_of(run: Run) -> int:
    """The highest number of a message that `run` tells of: each was durable before an event named it."""
    return max((run.message_seq, *run.delivered_inputs, *run.returned_inputs))
