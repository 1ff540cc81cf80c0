"""The few lines at the bottom of a terminal that are drawn again and again, below lines that stay.

Between two drawings the cursor rests at the beginning of the region's first line. Whatever the terminal does
to the lines when its size changes (some fold them, some cut them), that place moves along, and erasing from
there to the end of the screen removes the region and nothing else. So no row is counted after it was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# ECMA-48 and DEC STD 070, which every terminal that is not `dumb` follows.
_ERASE_BELOW = "\r\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Stream(Protocol):
    """What is drawn on."""

    def write(self, text: str, /) -> object:
        """Takes text."""

    def flush(self) -> object:
        """Sends all that was taken."""


class Region:
    """Draws on `stream`; nothing else may write there while lines are shown."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._shown: list[str] = []

    def draw(self, printed: Sequence[str], lines: Sequence[str]) -> None:
        """Prints the lines `printed` for good and shows `lines` below them, instead of what was shown."""
        text = _ERASE_BELOW if self._shown else ""
        text += "".join(f"{each}\n" for each in printed)
        if lines:
            up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
            # A line of more columns than were counted is cut by the terminal, instead of taking two rows.
            text += _NO_WRAP + "\n".join(lines) + "\r" + up + _WRAP
        self._shown = list(lines)
        if text:
            self._stream.write(text)
            self._stream.flush()

    def shows(self, lines: Sequence[str]) -> bool:
        """Whether these are the lines on the screen."""
        return self._shown == list(lines)
