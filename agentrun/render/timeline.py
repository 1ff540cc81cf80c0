"""A run's operations against time, on a terminal of any width: what ran side by side stands one below the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby

from agentrun.records.bars import Bar
from agentrun.records.operation import MODEL
from agentrun.records.timeline import Timeline
from agentrun.records.views import InputState, RunDetail
from agentrun.render import hints
from agentrun.render.chart import Chart, Piece, Row, What, chart_of
from agentrun.render.safe import columns_of, cut, padded
from agentrun.render.theme import OPERATION_MARKS, RUN_MARKS, USER, Mark, Screen, Span, Style, line, marked, say
from agentrun.render.times import duration
from agentrun.render.transcript import run_head

# Columns: of the bars at the least, beside their names; of the names at the most; of a time.
_LEAST_BARS, _MOST_NAMES, _TIME = 16, 36, 8
_TEXTURES = {"work": ("█", "#"), "rest": ("░", "."), "open": ("█", "#")}
_GOES_ON = ("▶", ">")
_GAP = ("┊", ":")


def timeline_lines(detail: RunDetail, timeline: Timeline, screen: Screen, now: float) -> Iterator[str]:
    """The chart of one run, with what needs attention below it, each line with its newline."""
    widest = 0

    def meet(what: What) -> None:
        nonlocal widest
        widest = max(widest, columns_of(_name(what, screen)[1]))

    chart = chart_of(detail, timeline, now, meet)
    attention = hints.attention(detail.view, screen, now)
    for each in chain([run_head(detail.view, screen, now)], _chart_lines(chart, widest, screen), attention):
        yield f"{each}\n"


def _chart_lines(chart: Chart, names: int, screen: Screen) -> Iterator[str]:
    """The rows below their axis; where there is no room beside the names, whose columns these are, below them."""
    if chart.is_empty:
        yield "  nothing has been started yet"
        return
    widest = min(names + 4, _MOST_NAMES)
    room = screen.width - widest - _TIME - 1
    draw = _beside if room >= _LEAST_BARS else _below
    if draw is _below:
        widest, room = 0, max(screen.width - 4, 1)
    indent = " " * (widest or 4)
    yield line([Span(indent + _axis(chart, room), Style.DIM)], screen, screen.width).rstrip()
    for row in chart.rows:
        yield from draw(row, *_name(row.what, screen), (widest, room), chart, screen)
    yield from _gap_lines(chart, screen)


def _beside(row: Row, mark: Mark, name: str, columns: tuple[int, int], chart: Chart, screen: Screen) -> list[str]:
    widest, room = columns
    head = padded(cut(name, widest - 4, unicode=screen.unicode), widest - 4)
    spans = [marked(mark, screen), Span(f" {head}  "), *_bar(row, mark, room, chart, screen)]
    return [line([*spans, Span(f" {_time(row):>{_TIME}}", Style.DIM)], screen)]


def _below(row: Row, mark: Mark, name: str, columns: tuple[int, int], chart: Chart, screen: Screen) -> list[str]:
    head = [marked(mark, screen), Span(f" {_time(row)}  ".rstrip(" ") + " ", Style.DIM), Span(name)]
    bar = [Span("    "), *_bar(row, mark, columns[1], chart, screen)]
    return [line(head, screen, screen.width), line(bar, screen, screen.width).rstrip()]


def _name(what: What, screen: Screen) -> tuple[Mark, str]:
    if isinstance(what, Bar):
        operation = what.operation
        kind = f"{operation.kind} " if operation.kind == MODEL else ""
        name = f"{say(operation.operation_id, screen)} {kind}{say(operation.name, screen)}"
        return OPERATION_MARKS[operation.status], name
    if isinstance(what, InputState):
        return USER, f"#{what.message.seq} {say(what.message.mode or '', screen)} {what.state}"
    return RUN_MARKS[what.status], what.status.value


def _time(row: Row) -> str:
    return "" if row.seconds is None else duration(row.seconds)


def _bar(row: Row, mark: Mark, room: int, chart: Chart, screen: Screen) -> list[Span]:
    """The pieces of a row in `room` columns; each takes one column at least."""
    form = 0 if screen.unicode else 1
    cells, styles = [" "] * room, [Style.PLAIN] * room
    for gap in chart.gaps:
        at = _column(gap.begin, room)
        cells[at], styles[at] = _GAP[form], Style.DIM
    for piece in row.pieces:
        first, last = _columns(piece, room)
        cells[first : last + 1] = _TEXTURES[piece.texture][form] * (last + 1 - first)
        styles[first : last + 1] = [mark.style] * (last + 1 - first)
        if piece.texture == "open":
            cells[last] = _GOES_ON[form]
    spans, at = [], 0
    for style, run in groupby(styles):
        end = at + len(list(run))
        spans.append(Span("".join(cells[at:end]), style))
        at = end
    return spans


def _columns(piece: Piece, room: int) -> tuple[int, int]:
    first = _column(piece.begin, room)
    # What ends where something else begins does not reach into its column.
    return first, max(_column(piece.end - 1e-9, room), first)


def _column(at: float, room: int) -> int:
    return min(max(int(at * room), 0), room - 1)


def _axis(chart: Chart, room: int) -> str:
    """The labels that have room: the ends of the axis before what lies between."""
    cells = " " * room
    for tick in (*chart.ticks[:1], *chart.ticks[-1:], *chart.ticks[1:-1]):
        text = duration(tick.seconds) if tick.seconds else "0s"
        begin = min(_column(tick.at, room), room - len(text))
        end = begin + len(text)
        if begin >= 0 and text not in cells and not cells[max(begin - 1, 0) : end + 1].strip():
            cells = cells[:begin] + text + cells[end:]
    return cells


def _gap_lines(chart: Chart, screen: Screen) -> list[str]:
    if not chart.gaps:
        return []
    sign = _GAP[0 if screen.unicode else 1]
    lengths = ", ".join(duration(gap.seconds) for gap in chart.gaps)
    return [
        line([Span(f"  {sign} drawn short: {lengths} in which nothing was under way", Style.DIM)], screen, screen.width)
    ]
