"""Searching a log from its beginning, a piece at a time: a line is held whole only if it seems to have the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from agentrun.records.codec import Doc, decode
from agentrun.store.log import Damage, Log
from agentrun.store.needle import Needle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


# Well below the 128 KB from which malloc(3) takes pages of its own for each piece and gives them back with it: to have
# them zeroed by the kernel each time took a third of the search.
_CHUNK = 1 << 16


def records_with(log: Log, read: Callable[[Doc], T], needle: Needle) -> Iterator[T | Damage]:
    """The records in whose lines the text may stand, oldest first, and the damaged lines among those.

    Only what lasts through a power cut, since it is told to somebody. What was not there at the beginning, and what
    stands behind the last newline, is passed over.
    """
    size = log.size()
    is_synced = False
    for offset, length in _lines_with(log, needle, size):
        if not is_synced:
            log.sync_for_reading()
            is_synced = True
        line = log.bytes_at(offset, length)
        try:
            yield read(decode(line))
        except ValueError as error:
            yield Damage(log.path, offset, length, str(error))


def _lines_with(log: Log, needle: Needle, size: int) -> Iterator[tuple[int, int]]:
    """Where the lines begin that match, and how long they are without their newline."""
    # `window` is what was read from byte `base` on, searched up to `at`; the line that goes on there began at `begun`.
    base, begun, window, at = 0, 0, b"", 0
    small: bytes | None = None
    while True:
        found = _first(needle, window, small, at)
        newline = window.rfind(b"\n", at, found.start() if found else len(window))
        begun = base + newline + 1 if newline >= 0 else begun
        if found is not None:
            newline = window.find(b"\n", found.end())
            end = base + newline if newline >= 0 else _newline_from(log, base + len(window), size)
            if end is None:
                return
            yield begun, end - begun
            begun = end + 1
            if begun < base + len(window):
                at = begun - base
                continue
            base, window, small, at = begun, b"", None, 0
        # No spelling has a newline in it, so one that was cut by the end of the window begins in its last bytes. They
        # are read again: to put a window together of two pieces would copy all of the second.
        end = base + len(window)
        base, at = base + max(len(window) - needle.reach, at, begun - base), 0
        window = log.bytes_at(base, min(end + _CHUNK, size) - base)
        if base + len(window) <= end:
            return
        small = _looked_through(needle, window)


def _looked_through(needle: Needle, window: bytes) -> bytes | None:
    """`window` as the core of `needle` can be looked for in it; empty if the text cannot stand there.

    Looking for plain bytes is ten times as fast as trying a pattern at each place, which None asks for.
    """
    if b"\\" in window and b"\\u" in window:
        return None
    if needle.is_beyond_ascii and window.isascii():
        return b""
    if needle.core is None:
        return None
    return window.lower() if needle.core_has_letters else window


def _first(needle: Needle, window: bytes, small: bytes | None, at: int) -> re.Match[bytes] | None:
    """The first place from `at` on where the text may stand."""
    if small is not None:
        core = small.find(needle.core, at) if needle.core is not None else -1
        if core < 0:
            return None
        at = max(at, core - needle.reach)
    return needle.in_bytes.search(window, at)


def _newline_from(log: Log, offset: int, size: int) -> int | None:
    """Where the first newline at or behind byte `offset` stands."""
    while piece := log.bytes_at(offset, min(_CHUNK, size - offset)):
        newline = piece.find(b"\n")
        if newline >= 0:
            return offset + newline
        offset += len(piece)
    return None
