"""`ls --watch`: the list on a terminal, drawn again when it changes; in a pipe a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from agentrun import ids
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.cli.output import ReaderGone
from agentrun.commands.lookout import Lookout, Seen, seen
from agentrun.records.views import SessionRow
from agentrun.render.json import json_line, row_doc
from agentrun.render.region import Region
from agentrun.render.safe import folded
from agentrun.render.tables import grouped_text, rows_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Seconds after which the ages of a list in which nothing happens are drawn anew.
_AGES = 30.0


class _Terminal:
    """Standard output, for the part of the screen that is drawn again."""

    def write(self, text: str, /) -> None:
        """Sends it."""
        output.out(text)

    def flush(self) -> None:
        """Nothing is kept back."""


class _Picture:
    """The list as a part of the screen."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._region = Region(_Terminal())
        self._shown: tuple[object, ...] = ()
        self._lines: list[str] = []
        self._drawn_at = 0.0

    def tell(self, rows: list[SessionRow]) -> None:
        """Draws the list, if it is another one than what is shown."""
        screen, height = output.screen_of(sys.stdout, self._options), output.size_of(sys.stdout)[1]
        shown = (screen, height, *map(seen, rows))
        now = time.monotonic()
        if shown == self._shown and now - self._drawn_at < _AGES:
            return
        self._shown, self._drawn_at = shown, now
        self._lines = grouped_text(rows, screen).split("\n")[:-1] or ["no sessions"]
        # A line that is an id alone is not cut for a narrow screen as the others are: half an id means nothing.
        lines = [row for each in self._lines for row in (folded(each, screen.width) if ids.is_id(each) else [each])]
        # The cursor moves within the screen only; what has no room is what matters least.
        room = max(height - 1, 1)
        cut = lines if len(lines) <= room else [*lines[: room - 1], "..."]
        self._region.draw([], cut)

    def leave(self) -> None:
        """The list stays, whole, as what was printed."""
        self._region.draw(self._lines, [])


class _Lines:
    """A line for each session that is listed, and for each change."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._told: dict[str, Seen] = {}

    def tell(self, rows: list[SessionRow]) -> None:
        """Prints what is new, the oldest change first."""
        for row in reversed(rows):
            name, news = row.session.session_id, seen(row)
            if self._told.get(name) == news:
                continue
            self._told[name] = news
            if self._options.json:
                output.out_bytes(json_line(row_doc(row)))
            else:
                output.out(rows_text([row], output.screen_of(sys.stdout, self._options)))

    def leave(self) -> None:
        """Everything is printed."""


def watch(options: Options, read: Callable[[], list[SessionRow]]) -> NoReturn:
    """Watches the list that `read` returns until Ctrl-C, or until nobody reads it."""
    screen = output.screen_of(sys.stdout, options)
    shown = _Picture(options) if screen.interactive and not options.json else _Lines(options)
    lookout = Lookout(options.place().tree, read)
    try:
        while not output.is_left(1):
            shown.tell(lookout.look())
            lookout.wait()
        raise ReaderGone
    except KeyboardInterrupt:
        shown.leave()
        raise
    finally:
        lookout.close()
