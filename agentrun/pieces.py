"""Reading to a bound, of what may have no end: a device, a pipe, a file that grows."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes that are asked for at once: to ask for all that there may be takes that much memory, whatever there is.
PIECE = 1 << 20


def read_to(most: int, read: Callable[[int], bytes]) -> bytes | None:
    """All that `read` gives, which is told how much at the most; None if that is more than `most` bytes."""
    pieces, length = [], 0
    while length <= most and (piece := read(PIECE)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces) if length <= most else None
