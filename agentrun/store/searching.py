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


_CHUNK = 1 << 18


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
        # No spelling has a newline in it, so one that was cut by the end of the window begins in its last bytes.
        kept = max(len(window) - needle.reach, at, begun - base)
        base, window, at = base + kept, window[kept:], 0
        chunk = log.bytes_at(base + len(window), min(_CHUNK, size - base - len(window)))
        if not chunk:
            return
        window += chunk
        small = _in_small_letters(needle, window)


def _in_small_letters(needle: Needle, window: bytes) -> bytes | None:
    """`window` with the capitals of ASCII made small, where the core of `needle` can be looked for in that.

    Looking for plain bytes is ten times as fast as trying a pattern at each place.
    """
    is_escaped = b"\\" in window and b"\\u" in window
    return None if needle.core is None or is_escaped else window.lower()


def _first(needle: Needle, window: bytes, small: bytes | None, at: int) -> re.Match[bytes] | None:
    """The first place from `at` on where the text may stand."""
    if small is not None and needle.core is not None:
        core = small.find(needle.core, at)
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
