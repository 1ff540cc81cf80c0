"""The rows of a run's timeline and where on it each of their pieces stands, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from agentrun.named import NamedTuple
from agentrun.records.timeline import Bar, Stay, Timeline
from agentrun.records.views import InputState, RunDetail
from agentrun.render.axis import Axis, Span
from agentrun.render.times import moment
from agentrun.states import RunStatus

# `work` was under way; `rest` is the pause between two attempts, or the time for which somebody was waited for.
# `open` is work of which no end is known yet.
Texture = Literal["work", "rest", "open"]

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

    what: Bar | InputState | Stay
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
    """`begin` and `end` in seconds since the epoch."""

    rows: tuple[Row, ...]
    gaps: tuple[Gap, ...]
    ticks: tuple[Tick, ...]
    begin: float
    end: float


class _Placed(NamedTuple):
    """A row on the clock."""

    what: Bar | InputState | Stay
    pieces: tuple[tuple[Span, Texture], ...]

    @property
    def span(self) -> Span | None:
        spans = [span for span, _ in self.pieces]
        return Span(min(spans)[0], max(span.end for span in spans)) if spans else None


def chart_of(detail: RunDetail, timeline: Timeline, now: float) -> Chart:
    """The chart of a run; what has no end yet is drawn up to `now`, what the run left open up to its own end."""
    run = detail.view.run
    last = moment(run.terminal_at) or (moment(run.updated_at) if detail.view.executor == "lost" else None) or now
    placed = [*_operations(timeline, last), *_stays(timeline, last), *_inputs(detail, timeline, last)]
    spans = [each.span for each in placed if each.span is not None]
    begin = min((span.begin for span in spans), default=last)
    end = max((span.end for span in spans), default=last)
    axis = Axis(begin, end, _busy(placed))
    gaps = tuple(Gap(axis.at(gap.begin), axis.at(gap.end), gap.seconds) for gap in axis.gaps)
    rows = tuple(_row(each, axis) for each in _in_order(placed))
    return Chart(rows, gaps, tuple(_ticks(axis)), begin, end)


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
        taken = moment(timeline.deliveries.get(state.message.seq))
        span = Span(said, max(last if taken is None else taken, said))
        yield _Placed(state, ((span, "open" if state.state == "waiting" else "rest"),))


def _busy(placed: Iterable[_Placed]) -> Iterator[Span]:
    for each in placed:
        if isinstance(each.what, Bar):
            yield from (span for span, texture in each.pieces if texture != "rest")
        elif isinstance(each.what, InputState):
            # The moment itself must stay visible, not the time until it was taken.
            yield Span(each.pieces[0][0].begin, each.pieces[0][0].begin)


def _in_order(placed: Sequence[_Placed]) -> list[_Placed]:
    """Operations as they were registered; all else before the first operation that began after it."""
    bars = [each for each in placed if isinstance(each.what, Bar)]
    begun = [each.span.begin if each.span else None for each in bars]

    def place(each: _Placed) -> tuple[int, int]:
        at = each.span.begin if each.span else 0.0
        later = (number for number, begin in enumerate(begun) if begin is not None and begin > at)
        return next(later, len(bars)), 0

    keyed = [((number, 1), each) for number, each in enumerate(bars)]
    keyed += [(place(each), each) for each in placed if not isinstance(each.what, Bar)]
    return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]


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
