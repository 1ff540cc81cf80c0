"""Reading a log from its beginning to its end, many lines at once where that is sure; memory does not grow with it.

The first lines are read one by one, as `Log.forward` does: whoever wants a page of fifty is done before anything else
is loaded. Then come pieces of whole lines. A piece of which not every line is certain is read one by one as well, so
that damage is named by its offset and hides no other line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.records.codec import Doc
from agentrun.store.log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


# The lines before this byte, from where it begins, are read one by one.
_ONE_BY_ONE = 1 << 15
# More at once is slower: it no longer stays in the processor's nearest memory.
_PIECE = 1 << 15
# After a line that is longer than a piece, the next ones may be as long: how much to read one by one then.
_LONG = 1 << 20


def records(
    log: Log,
    read: Callable[[Doc], T],
    many: Callable[[bytes], list[T] | None],
    start: int = 0,
    end: int | None = None,
) -> Iterator[T]:
    """Every record from byte `start` on and before byte `end`, oldest first.

    `many` makes of whole lines the same records that `read` makes of each, or None where it is not sure of all.
    """
    position, sure_from = start, start + _ONE_BY_ONE
    while True:
        for behind, record in log.forward(read, position):
            if end is not None and behind > end:
                return
            yield record
            position = behind
            if position >= sure_from:
                break
        else:
            return
        while lines := _whole_lines(log, position, end):
            found = many(lines)
            if found is None:
                break
            yield from found
            position += len(lines)
        sure_from = position + (len(lines) or _LONG)


def lasting_records(
    log: Log, read: Callable[[Doc], T], many: Callable[[bytes], list[T] | None], start: int = 0
) -> Iterator[T]:
    """The same, but only what lasts through a power cut: for what is told to somebody."""
    end = log.size()
    log.sync_for_reading()
    return records(log, read, many, start, end)


def _whole_lines(log: Log, position: int, end: int | None) -> bytes:
    """Lines from byte `position` on, each with its newline; none if the first is longer than a piece."""
    piece = log.bytes_at(position, _PIECE if end is None else min(_PIECE, end - position))
    return piece[: piece.rfind(b"\n") + 1]
