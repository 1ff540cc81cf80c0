"""Lists in columns: ids first and never cut, free text last, since no count of its columns is sure."""

from __future__ import annotations

import time

from agentrun.named import NamedTuple
from agentrun.records.views import Group, SessionRow
from agentrun.render.safe import excerpt, padded
from agentrun.render.theme import Screen, Span, Style, line, run_status, say
from agentrun.render.times import age, moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# A title of fewer columns says nothing: the row then takes two lines.
_LEAST_TITLE = 12


class _Row(NamedTuple):
    session_id: str
    status: list[Span]
    age: str
    title: str

    @property
    def status_columns(self) -> int:
        return sum(len(span.text) for span in self.status)


def rows_text(rows: Sequence[SessionRow], screen: Screen, now: float | None = None) -> str:
    """Sessions one a row, in the order given: id, status of the newest run, age of the last change, title."""
    return "".join(f"{each}\n" for each in _drawn(rows, screen, now))


def grouped_text(rows: Sequence[SessionRow], screen: Screen, now: float | None = None) -> str:
    """The same under headings: what needs the user, what goes on by itself, what is done; the order is kept in each."""
    drawn = list(zip(rows, _drawn(rows, screen, now), strict=True))
    parts = []
    for group in Group:
        lines = [f"{text}\n" for row, text in drawn if row.group is group]
        if lines:
            parts.append(line([Span(group.value, Style.STRONG)], screen, screen.width) + "\n" + "".join(lines))
    return "\n".join(parts)


def _drawn(rows: Sequence[SessionRow], screen: Screen, now: float | None) -> list[str]:
    """Each row as one line or two, in the columns that fit all of them."""
    now = time.time() if now is None else now
    table = [_row(row, screen, now) for row in rows]
    ids = max((len(row.session_id) for row in table), default=0)
    words = max((row.status_columns for row in table), default=0)
    ages = max((len(row.age) for row in table), default=0)
    room = screen.width - ids - words - ages - 6
    draw = _wide if room >= _LEAST_TITLE else _narrow
    return [draw(row, (ids, words, ages), screen) for row in table]


def _row(row: SessionRow, screen: Screen, now: float) -> _Row:
    changed = moment(row.changed_at)
    return _Row(
        session_id=say(row.session.session_id, screen),
        status=run_status(row.newest, screen) if row.newest else [Span("no run", Style.DIM)],
        age="" if changed is None else age(now - changed),
        title=excerpt(row.session.title, screen.width, unicode=screen.unicode),
    )


def _wide(row: _Row, columns: tuple[int, int, int], screen: Screen) -> str:
    ids, words, ages = columns
    spans = [
        Span(f"{padded(row.session_id, ids)}  "),
        *row.status,
        Span(" " * (words - row.status_columns)),
        Span(f"  {row.age:>{ages}}  ", Style.DIM),
        Span(row.title),
    ]
    return line(spans, screen, screen.width).rstrip()


def _narrow(row: _Row, columns: tuple[int, int, int], screen: Screen) -> str:
    spans = [Span("  "), *row.status, Span(f"  {row.age}", Style.DIM), Span(f"  {row.title}")]
    return f"{row.session_id}\n{line(spans, screen, screen.width).rstrip()}"
