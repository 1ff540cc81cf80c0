"""A run as it happens: what is finished is printed once and stays, what goes on is shown in a few lines.

`Live` is fed with the run's events and messages; whoever joins late feeds them from the first, and sees the
same. On a screen that is not interactive there are only the lines that stay. Until `finish` the stream is the
view's, but between `pause` and `resume` others may write to it. Not for several threads at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.records.views import RunDetail, RunView
from agentrun.render import hints
from agentrun.render.region import Region, Stream
from agentrun.render.safe import excerpt, folded, tail
from agentrun.render.theme import NOTE, QUESTION, USER, Screen, Span, Style, line, marked, run_status, say
from agentrun.render.times import moment, running_time
from agentrun.render.told import Told
from agentrun.render.transcript import operation_head, usage_words
from agentrun.states import EventType

# Ten drawings a second look smooth; more cost the terminal and the reader more than they tell.
# What happened is shown as soon as it can be seen, since a person waits for it.
_BETWEEN_DRAFTS, _BETWEEN_EVENTS, _BETWEEN_AGES = 0.1, 0.02, 1.0
_USUAL_ROWS = 24
# The region stays small, so that what is printed above it stays in sight.
_MOST_ROWS, _MOST_OPERATIONS, _MOST_INPUTS, _MOST_UNRESOLVED, _DRAFT_ROWS = 12, 4, 2, 2, 2


class Live:
    """One view of one run on `stream`.

    `size` gives the columns and rows of the terminal as they are now, `wall` the seconds since the epoch.
    """

    def __init__(
        self,
        screen: Screen,
        stream: Stream,
        *,
        size: Callable[[], tuple[int, int]] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._screen = screen
        self._ask_size = size
        self._wall = wall
        self._told = Told()
        self._region = Region(stream)
        self._lines: list[str] = []
        self._draft = ""
        # Who begins in the middle has not seen whether a request is under way.
        self._is_asking = True
        self._is_paused = False
        # Seconds that the next drawing has to keep from the last one; None: nothing to draw.
        self._due_after: float | None = None
        self._drawn_at = 0.0
        self._drawn_size = self._size()

    def event(self, event: Event) -> None:
        """Something happened."""
        if event.type in (EventType.MODEL_REQUEST_STARTED, EventType.MODEL_REQUEST_FINISHED):
            self._draft, self._is_asking = "", event.type == EventType.MODEL_REQUEST_STARTED
        self._lines += self._told.event(event, self._measured())
        self._update(_BETWEEN_EVENTS)

    def message(self, message: Message) -> None:
        """Something was said. A user's message is shown as waiting, and printed when the run has taken it."""
        self._lines += self._told.message(message, self._measured())
        self._update(_BETWEEN_EVENTS)

    def forgotten(self, event: Event) -> list[int]:
        """The numbers of messages that are to come again before `event`: so much was said since."""
        return self._told.forgotten(event)

    def draft(self, text: str) -> None:
        """All that the model has said so far in the request that is under way."""
        # The file of the draft stays when its request has ended: who comes later finds it, and has read the reply.
        self._draft = text if self._is_asking else ""
        self._update(_BETWEEN_DRAFTS)

    def tick(self, now: float | None = None) -> None:
        """Time has passed: draws what is due. Wanted when `next_tick` says, and when the size changes."""
        now = self._wall() if now is None else now
        is_resized = self._size() != self._drawn_size
        is_old = self._told.is_going_on and not 0 <= now - self._drawn_at < _BETWEEN_AGES
        if is_resized or is_old or self._is_due(now):
            self._draw(now)

    def next_tick(self) -> float | None:
        """Seconds until `tick` has something to do; None: not before something comes."""
        if self._is_paused or not self._screen.interactive:
            return None
        after = _BETWEEN_AGES if self._told.is_going_on else None
        after = after if self._due_after is None else self._due_after
        return None if after is None else max(after - max(self._wall() - self._drawn_at, 0.0), 0.0)

    @property
    def is_redrawn(self) -> bool:
        """Whether anything on the screen changes with time, so that `tick` is wanted."""
        return self._screen.interactive

    def pause(self) -> None:
        """Takes the region away, so that others may write; prints the question that is open.

        Feeding goes on; `resume` prints what came. So a long backlog between the two costs one drawing.
        """
        self._lines += self._told.question(self._measured())
        self._put([])
        self._is_paused = True

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._is_paused = False
        self._draw(self._wall())

    def finish(self, detail: RunDetail | None = None) -> None:
        """Ends the view: prints how the run stands, what it left, what to do. The report is the caller's.

        Without `detail`, as when the viewer leaves, only the region goes.
        """
        self._is_paused = False
        if detail is not None:
            self._lines += self._told.end(detail, self._measured(), self._wall())
        self._put([])

    def _update(self, after: float) -> None:
        self._due_after = after if self._due_after is None else min(after, self._due_after)
        now = self._wall()
        # Lines that stay are printed at once. What is only shown waits for its turn, and `tick` draws it.
        if self._lines or self._is_due(now):
            self._draw(now)

    def _is_due(self, now: float) -> bool:
        # A clock that was set back must not stop the drawing.
        return self._due_after is not None and not 0 <= now - self._drawn_at < self._due_after

    def _size(self) -> tuple[int, int]:
        columns, rows = self._ask_size() if self._ask_size else (0, 0)
        # A terminal that nobody has told its size says that it has none.
        return columns or self._screen.width, rows or _USUAL_ROWS

    def _measured(self) -> Screen:
        """The screen with the width that it has now."""
        return self._screen._replace(width=self._size()[0])

    def _draw(self, now: float) -> None:
        if self._is_paused:
            return
        self._drawn_at = now
        self._put(self._rows(now) if self._screen.interactive else [])

    def _put(self, rows: list[str]) -> None:
        size = self._size()
        if self._lines or size != self._drawn_size or not self._region.shows(rows):
            self._region.draw(self._lines, rows)
        self._lines, self._due_after, self._drawn_size = [], None, size

    def _rows(self, now: float) -> list[str]:
        """The lines of the region: status, what runs, what the model says, what waits for whom."""
        run = self._told.run
        if run is None or run.is_over:
            return []
        screen = self._measured()
        rows = [
            _status_row(run, self._told, screen, now),
            *_operation_rows(self._told.open_operations, screen, now),
            *_draft_rows(self._draft, screen),
            *_question_rows(run, screen),
            *_input_rows(self._told.waiting_inputs, screen),
            *_unresolved_rows(run.unresolved_operations, screen),
        ]
        # One row is left for the cursor's line below, lest the terminal scrolls the first one away.
        return rows[: max(min(_MOST_ROWS, self._size()[1] - 1), 1)]


def _status_row(run: Run, told: Told, screen: Screen, now: float) -> str:
    """How it stands: the turn, how long, how much of its time is left, and what it has used."""
    begun = moment(run.started_at) if told.is_going_on else None
    until = moment(run.timeout_at) if told.is_going_on else None
    words = [
        say(told.turn_id or "", screen),
        running_time(now - begun) if begun is not None else "",
        f"{running_time(until - now)} left" if until is not None else "",
        *usage_words(run.usage | {"turns": 0}),  # the turn is named
    ]
    more = "".join(f"  {word}" for word in words if word)
    return line([*run_status(RunView(run, run.status, "alive"), screen), Span(more, Style.DIM)], screen, screen.width)


def _operation_rows(operations: list[Operation], screen: Screen, now: float) -> list[str]:
    rows = []
    for operation in operations[:_MOST_OPERATIONS]:
        begun = moment(operation.started_at)
        took = _pause(operation, now) or (running_time(now - begun) if begun is not None else None)
        rows.append(f"  {operation_head(operation, screen._replace(width=screen.width - 2), took)}")
    left = len(operations) - len(rows)
    return [*rows, f"  and {left} more"] if left else rows


def _pause(operation: Operation, now: float) -> str | None:
    """`attempt 2 in 3s`, between two attempts."""
    since = moment(operation.paused_at)
    if since is None or operation.pause_ms is None:
        return None
    return f"attempt {operation.attempt + 1} in {running_time(math.ceil(since + operation.pause_ms / 1000 - now))}"


def _draft_rows(draft: str, screen: Screen) -> list[str]:
    if not draft:
        return []
    said = tail(draft, max(screen.width - 4, 1), _DRAFT_ROWS, unicode=screen.unicode)
    return [line([Span(f"    {each}", Style.DIM)], screen) for each in said]


def _question_rows(run: Run, screen: Screen) -> list[str]:
    if not run.waiting_for:
        return []
    text = excerpt(str(run.waiting_for.get("text") or ""), max(screen.width - 4, 1), unicode=screen.unicode)
    head = Span(f"  {text}", Style.CARE)
    # Folded, since the terminal would put an id's last character in the place of one that has no room.
    commands = hints.how_to_answer(RunView(run, run.status, "alive"), screen)
    rows = [row for each in commands for row in folded(each, max(screen.width, 1))]
    return [line([Span("  "), marked(QUESTION, screen), head], screen, screen.width), *rows]


def _input_rows(waiting: list[Message], screen: Screen) -> list[str]:
    rows = []
    for message in waiting[-_MOST_INPUTS:]:
        head = Span(f" #{message.seq} {say(message.mode or '', screen)} waiting", Style.CARE)
        text = Span(f"  {excerpt(message.text, screen.width, unicode=screen.unicode)}")
        rows.append(line([Span("  "), marked(USER, screen), head, text], screen, screen.width))
    return rows


def _unresolved_rows(operations: tuple[Operation, ...], screen: Screen) -> list[str]:
    rows = []
    for operation in operations[:_MOST_UNRESOLVED]:
        name = f" {say(operation.operation_id, screen)}  {say(operation.name, screen)}  unresolved"
        rows.append(line([Span("  "), marked(NOTE, screen), Span(name, Style.CARE)], screen, screen.width))
    return rows
