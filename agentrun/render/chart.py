"""The rows of a run's timeline and where on it each of their pieces stands, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal

from agentrun.named import NamedTuple
from agentrun.records.bars import Bar
from agentrun.records.timeline import Stay, Timeline
from agentrun.records.views import InputState, RunDetail
from agentrun.render.axis import NEVER_SHORT, Axis, Span
from agentrun.render.times import moment
from agentrun.states import RunStatus

# `work` was under way; `rest` is the pause between two attempts, or the time for which somebody was waited for.
# `open` is work of which no end is known yet.
Texture = Literal["work", "rest", "open"]
# What a row is of.
What = Bar | InputState | Stay

# What the run was doing while no operation tells of it.
_TOLD_STAYS = frozenset(
    {
        RunStatus.QUEUED,
        RunStatus.WAITING_INPUT,
        RunStatus.COMPACTING,
        RunStatus.RECONCILING,
        RunStatus.CANCELLING,
    }
)
# Seconds of a stay that is worth a row; a run that starts at once was never queued in the eyes of a person.
_WORTH_A_ROW = 0.5
_TICKS = 4
# Labels that stand closer than this part of the axis would cover each other.
_APART = 0.1


class Piece(NamedTuple):
    """A stretch of a row, its ends between 0 and 1."""

    begin: float
    end: float
    texture: Texture


class Row(NamedTuple):
    """An operation, an input or a stay with its pieces; `seconds` is how long all of it took, if that is known."""

    what: What
    pieces: tuple[Piece, ...]
    seconds: float | None


class Gap(NamedTuple):
    """Idle time that was squeezed: where, and how long it was."""

    begin: float
    end: float
    seconds: float


class Tick(NamedTuple):
    """Where the axis is labelled, and how long after its beginning that is, in seconds."""

    at: float
    seconds: float


class Chart(NamedTuple):
    """`begin` and `end` in seconds since the epoch. `rows` are made anew for each who goes through them."""

    rows: Iterable[Row]
    is_empty: bool
    gaps: tuple[Gap, ...]
    ticks: tuple[Tick, ...]
    begin: float
    end: float


class _Placed(NamedTuple):
    """A row on the clock."""

    what: What
    pieces: tuple[tuple[Span, Texture], ...]

    @property
    def span(self) -> Span | None:
        spans = [span for span, _ in self.pieces]
        return Span(min(spans)[0], max(span.end for span in spans)) if spans else None

    @property
    def begin(self) -> float:
        span = self.span
        return span.begin if span else 0.0


def chart_of(
    detail: RunDetail, timeline: Timeline, now: float, meet: Callable[[What], object] = lambda what: None
) -> Chart:
    """The chart of a run; what has no end yet is drawn up to `now`, what the run left open up to its own end.

    `meet` is told what the rows are of, in no order, before the chart is there: how wide they are, say.
    """
    run = detail.view.run
    last = moment(run.terminal_at) or (moment(run.updated_at) if detail.view.executor == "lost" else None) or now
    stays = tuple(_stays(timeline, last))
    extent = _Extent()
    for each in chain(_operations(timeline, last), stays, _inputs(detail, timeline, last)):
        meet(each.what)
        extent.add(each)
    begin, end = extent.ends or (last, last)
    axis = Axis(begin, end, extent.busy, extent.moments)
    gaps = tuple(Gap(axis.at(gap.begin), axis.at(gap.end), gap.seconds) for gap in axis.gaps)

    def placed() -> Iterator[_Placed]:
        return _in_order(_operations(timeline, last), stays, _inputs(detail, timeline, last))

    rows = _Rows(lambda: (_row(each, axis) for each in placed()))
    return Chart(rows, extent.is_empty, gaps, tuple(_ticks(axis)), begin, end)


class _Rows:
    """Rows that are made whenever somebody goes through them, from the bars and the inputs: nobody holds them all."""

    def __init__(self, make: Callable[[], Iterator[Row]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Row]:
        return self._make()


class _Extent:
    """From when to when anything lasts, when something was under way, and the moments that must stay visible.

    Of the latter those that stand close are one.
    """

    def __init__(self) -> None:
        self.ends: tuple[float, float] | None = None
        self.busy: list[Span] = []
        self.moments: list[Span] = []
        self.is_empty = True

    def add(self, placed: _Placed) -> None:
        self.is_empty = False
        span = placed.span
        if span is not None:
            begin, end = self.ends or span
            self.ends = min(begin, span.begin), max(end, span.end)
        if isinstance(placed.what, InputState):
            # The moment itself must stay visible, not the time until it was taken.
            said = placed.pieces[0][0].begin
            _join(self.moments, Span(said, said), NEVER_SHORT)
        elif isinstance(placed.what, Bar):
            for each, texture in placed.pieces:
                if texture != "rest":
                    # One after the other without a pause is one, and most are.
                    _join(self.busy, each, 0.0)


def _join(spans: list[Span], each: Span, apart: float) -> None:
    """Puts `each` to `spans`, as a part of the last one if that ends at most so many seconds before it."""
    if spans and spans[-1].begin <= each.begin <= spans[-1].end + apart:
        spans[-1] = Span(spans[-1].begin, max(spans[-1].end, each.end))
    else:
        spans.append(each)


def _operations(timeline: Timeline, last: float) -> Iterator[_Placed]:
    for bar in timeline.bars:
        pieces: list[tuple[Span, Texture]] = []
        for attempt in bar.attempts:
            begun = moment(attempt.started_at)
            if begun is None:
                continue
            ended = moment(attempt.finished_at)
            if pieces and begun > pieces[-1][0].end:
                pieces.append((Span(pieces[-1][0].end, begun), "rest"))
            span = Span(begun, max(last if ended is None else ended, begun))
            pieces.append((span, "work" if attempt.finished_at else "open"))
        yield _Placed(bar, tuple(pieces))


def _stays(timeline: Timeline, last: float) -> Iterator[_Placed]:
    for stay in timeline.stays:
        begun, ended = moment(stay.since), moment(stay.until)
        if stay.status not in _TOLD_STAYS or begun is None:
            continue
        span = Span(begun, max(last if ended is None else ended, begun))
        if span.seconds >= _WORTH_A_ROW:
            yield _Placed(stay, ((span, "rest" if stay.until else "open"),))


def _inputs(detail: RunDetail, timeline: Timeline, last: float) -> Iterator[_Placed]:
    for state in detail.inputs:
        said = moment(state.message.at)
        if said is None or state.message.seq == detail.view.run.message_seq:
            continue  # the chart begins with the prompt
        delivery = timeline.deliveries.get(state.message.seq)
        taken = moment(delivery.at) if delivery else None
        span = Span(said, max(last if taken is None else taken, said))
        yield _Placed(state, ((span, "open" if state.state == "waiting" else "rest"),))


def _in_order(bars: Iterable[_Placed], stays: Iterable[_Placed], inputs: Iterator[_Placed]) -> Iterator[_Placed]:
    """Operations as they were registered; all else before the first operation that began after it.

    Inputs are in the order of their numbers, whatever the clock did meanwhile.
    """
    waiting = list(stays)
    upcoming = next(inputs, None)
    for bar in bars:
        begin = bar.span.begin if bar.span else None
        if begin is not None:
            yield from (each for each in waiting if each.begin < begin)
            waiting = [each for each in waiting if each.begin >= begin]
            while upcoming is not None and upcoming.begin < begin:
                yield upcoming
                upcoming = next(inputs, None)
        yield bar
    yield from waiting
    if upcoming is not None:
        yield upcoming
        yield from inputs


def _row(placed: _Placed, axis: Axis) -> Row:
    span = placed.span
    pieces = tuple(Piece(axis.at(each.begin), axis.at(each.end), texture) for each, texture in placed.pieces)
    return Row(placed.what, pieces, None if span is None else span.seconds)


def _ticks(axis: Axis) -> Iterator[Tick]:
    """Evenly where the axis is true to scale; else behind the gaps, whose lengths are told apart; never too close."""
    total = axis.end - axis.begin
    ends = [Tick(0.0, 0.0), Tick(1.0, total)]
    if axis.gaps:
        between = [Tick(axis.at(gap.end), gap.end - axis.begin) for gap in axis.gaps]
    else:
        between = [Tick(number / _TICKS, total * number / _TICKS) for number in range(1, _TICKS)]
    last = ends[0].at
    yield ends[0]
    for tick in between:
        if last + _APART <= tick.at <= 1 - _APART:
            yield tick
            last = tick.at
    yield ends[1]
