"""The timeline of a run as a part of a page: bars of plain elements, which need no script and print as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentrun.records.bars import Bar
from agentrun.records.operation import MODEL, Operation
from agentrun.records.timeline import Stay
from agentrun.records.views import InputState
from agentrun.render.chart import Chart, Gap, Piece, Row, Tick
from agentrun.render.html_text import CLASS_OF, attribute, inline, sign
from agentrun.render.theme import OPERATION_MARKS, RUN_MARKS, USER, Mark
from agentrun.render.times import duration

_NO_WORD = re.compile("[^A-Za-z0-9._-]")


def chart_html(chart: Chart, anchor: str) -> Iterator[str]:
    """The chart; each row leads to the step that `anchor` and its name make."""
    if chart.is_empty:
        return
    yield '<div class="chart">\n<div class="axis" aria-hidden="true">'
    yield "".join(_tick(tick, text) for text, tick in _labelled(chart.ticks).items())
    yield "".join(_gap(gap) for gap in chart.gaps)
    yield "</div>\n"
    for row in chart.rows:
        yield _row(row, anchor)
    yield "</div>\n"


def step_id(anchor: str, what: object) -> str:
    """The name of a step within its page; whatever an operation's id may be, it is one word."""
    match what:
        case Bar():
            return step_id(anchor, what.operation)
        case Operation():
            return f"{anchor}-{_NO_WORD.sub('_', what.operation_id)}"
        case InputState():
            return f"{anchor}-m{what.message.seq}"
        case _:
            return anchor


def _row(row: Row, anchor: str) -> str:
    mark, name, words = _named(row.what)
    took = "" if row.seconds is None else duration(row.seconds)
    pieces = "".join(_piece(piece, mark) for piece in row.pieces)
    return (
        f'<a class="row" href="#{step_id(anchor, row.what)}" title="{attribute(f"{words} {took}".strip())}">'
        f'<span class="name">{sign(mark)} {inline(name)}</span>'
        f'<span class="track">{pieces}</span><span class="took">{took}</span></a>\n'
    )


def _named(what: Bar | InputState | Stay) -> tuple[Mark, str, str]:
    """Its mark, its name, and that with its outcome."""
    if isinstance(what, Bar):
        operation = what.operation
        kind = f"{operation.kind} " if operation.kind == MODEL else ""
        name = f"{operation.operation_id} {kind}{operation.name}"
        return OPERATION_MARKS[operation.status], name, f"{name}: {operation.status}"
    if isinstance(what, InputState):
        name = f"#{what.message.seq} {what.message.mode or ''}"
        return USER, name, f"{name}: {what.state}"
    name = what.status.value.replace("_", " ")
    return RUN_MARKS[what.status], name, name


def _piece(piece: Piece, mark: Mark) -> str:
    # Three decimals of a percent are finer than any screen.
    place = f"left:{piece.begin * 100:.3f}%;width:{(piece.end - piece.begin) * 100:.3f}%"
    return f'<i class="bar {piece.texture} {CLASS_OF[mark.style]}" style="{place}"></i>'


def _labelled(ticks: Iterable[Tick]) -> dict[str, Tick]:
    """The last of those that would be labelled the same: next to days, seconds are not told apart."""
    return {duration(tick.seconds) if tick.seconds else "0s": tick for tick in ticks}


def _tick(tick: Tick, text: str) -> str:
    edge = " first" if tick.at == 0 else " last" if tick.at == 1 else ""
    return f'<span class="tick{edge}" style="left:{tick.at * 100:.3f}%"><b>{text}</b></span>'


def _gap(gap: Gap) -> str:
    place = f"left:{gap.begin * 100:.3f}%;width:{(gap.end - gap.begin) * 100:.3f}%"
    return f'<span class="gap" style="{place}" title="nothing was under way for {duration(gap.seconds)}"></span>'
