"""Reading a log from its beginning to its end, many lines at once where that is sure; memory does not grow with it.

The first lines are read one by one, as `Log.forward` does: whoever wants a few is done before anything else is loaded.
Then come pieces of whole lines. A piece of which not every line is certain is read one by one as well, so
that damage is named by its offset and hides no other line.
"""

from __future__ import annotations

import sys
from itertools import accumulate, islice

from agentrun.records.codec import Doc
from agentrun.store.log import Damage, Log, Torn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")


# Once in a process: the lines before this byte, from where it begins, are read one by one, which takes as long as it
# takes to load what reads many. That needs `re`, which no quick command has loaded: that takes several times as long.
_ONE_BY_ONE, _ONE_BY_ONE_WITHOUT_RE = 1 << 13, 1 << 18
# Whoever wants a page is done with the first pieces. More at once than the last is slower: it no longer stays in the
# processor's nearest memory.
_FIRST_PIECE, _PIECE = 1 << 13, 1 << 15
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
    for _, _, found in _pieces(log, lambda at: log.forward(read, at), many, start, end):
        yield from found


def lasting_records(
    log: Log,
    read: Callable[[Doc], T],
    many: Callable[[bytes], list[T] | None],
    start: int = 0,
    end: int | None = None,
) -> Iterator[T]:
    """The same, but only what lasts through a power cut: for what is told to somebody."""
    end = log.size() if end is None else end
    log.sync_for_reading()
    return records(log, read, many, start, end)


def entries(
    log: Log, read: Callable[[Doc], T], many: Callable[[bytes], list[T] | None]
) -> Iterator[tuple[int, T | Damage | Torn]]:
    """As `Log.entries`: everything that stands in the log, each with the offset behind it."""
    for behind, lines, found in _pieces(log, lambda at: log.entries(read, at), many):
        if lines:
            begin = behind - len(lines)
            ends = accumulate(map(len, lines.splitlines(keepends=True)), initial=begin)
            yield from zip(islice(ends, 1, None), found, strict=True)
        else:
            yield behind, found[0]


def _pieces(
    log: Log,
    one_by_one: Callable[[int], Iterator[tuple[int, T]]],
    many: Callable[[bytes], list[Any] | None],
    start: int = 0,
    end: int | None = None,
) -> Iterator[tuple[int, bytes, list[T]]]:
    """What stands there, piece by piece: the offset behind, the lines if they were read at once, and what they are."""
    position, length = start, _FIRST_PIECE
    sure_from = start + _bytes_one_by_one()
    while True:
        while position >= sure_from:
            lines = _whole_lines(log, position, length, end)
            found = many(lines) if lines else None
            if found is None:
                sure_from = position + (len(lines) or (_LONG if length == _PIECE else 1))
            else:
                position += len(lines)
                yield position, lines, found
            length = min(2 * length, _PIECE)
        for behind, one in one_by_one(position):
            if end is not None and behind > end:
                return
            yield behind, b"", [one]
            position = behind
            if position >= sure_from:
                break
        else:
            return


def _bytes_one_by_one() -> int:
    if "agentrun.records.in_bulk" in sys.modules:
        return 0
    return _ONE_BY_ONE if "re" in sys.modules else _ONE_BY_ONE_WITHOUT_RE


def _whole_lines(log: Log, position: int, length: int, end: int | None) -> bytes:
    """Lines from byte `position` on, each with its newline; none if the first is longer than that."""
    piece = log.bytes_at(position, length if end is None else min(length, end - position))
    return piece[: piece.rfind(b"\n") + 1]
