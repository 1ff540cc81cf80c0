"""Looking back through a long log for the few records of one kind: the other lines are neither decoded nor kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.records.codec import Doc
from agentrun.store.log import Damage, Log, Torn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


_PIECE = 1 << 16
# A letter of ASCII may be spelled by its number: whatever has such an escape is decoded.
_ESCAPE = b"\\u00"


def newest_with(log: Log, read: Callable[[Doc], T], values: tuple[str, ...], start: int = 0) -> Iterator[T]:
    """Records from byte `start` on in which a field has one of `values` (letters of ASCII), newest first.

    There may be others among them, and the log's `damage` names those that cannot be read.
    """
    words = (*(f'"{value}"'.encode("ascii") for value in values), _ESCAPE)
    overlap = max(map(len, words)) - 1
    position = log.size()
    while position > start:
        base = max(position - _PIECE, start)
        piece = log.bytes_at(base, position - base)
        there = [word for word in words if word in piece]
        while (found := max((piece.rfind(word) for word in there), default=-1)) >= 0:
            newline = piece.rfind(b"\n", 0, found)
            begin = base + newline + 1 if newline >= 0 else _line_start(log, base, start)
            entry = next(log.entries(read, begin))[1]
            if isinstance(entry, Damage):
                next(log.forward(read, begin), None)  # so that it is told
            elif not isinstance(entry, Torn):
                yield entry
            piece = piece[: max(begin - base, 0)]
            position = min(position, begin)
        # A word that was cut where this piece begins ends in its first bytes.
        position = min(position, base + overlap) if base > start else start


def _line_start(log: Log, offset: int, start: int) -> int:
    """The start of the line in which byte `offset` stands."""
    while offset > start:
        base = max(offset - _PIECE, start)
        newline = log.bytes_at(base, offset - base).rfind(b"\n")
        if newline >= 0:
            return base + newline + 1
        offset = base
    return start
