"""Where on a line a moment stands. Time in which nothing happens takes little room, however long it was.

A run may wait for days for an answer; drawn true to scale, everything else would be one column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrun.named import NamedTuple

# An idle stretch is squeezed if it is longer than this part of all the busy time, and than so many seconds.
_LONG, _LEAST_SECONDS = 0.25, 5.0
# The part of the busy time whose room a squeezed stretch takes.
_SQUEEZED = 0.06


class Span(NamedTuple):
    """From one moment to another, in seconds since the epoch."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


class Axis:
    """Maps moments between `begin` and `end` to 0..1. `gaps` are the stretches that were squeezed."""

    def __init__(self, begin: float, end: float, busy: Iterable[Span] = ()) -> None:
        self.begin, self.end = begin, max(end, begin)
        merged = _merged(span for span in busy if span.end >= self.begin and span.begin <= self.end)
        working = sum(span.seconds for span in merged)
        limit = max(working * _LONG, _LEAST_SECONDS)
        self.gaps = tuple(gap for gap in _between(self.begin, self.end, merged) if working and gap.seconds > limit)
        self._room = working * _SQUEEZED
        self._length = self._drawn(self.end)

    def at(self, moment: float) -> float:
        """Where `moment` stands; what is outside stands at the edge."""
        inside = min(max(moment, self.begin), self.end)
        return self._drawn(inside) / self._length if self._length else 0.0

    def _drawn(self, moment: float) -> float:
        """The seconds that are drawn before `moment`."""
        drawn = moment - self.begin
        for gap in self.gaps:
            passed = min(max(moment - gap.begin, 0.0), gap.seconds)
            drawn -= passed * (1 - self._room / gap.seconds)
        return drawn


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = Span(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _between(begin: float, end: float, merged: Sequence[Span]) -> Iterable[Span]:
    at = begin
    for span in merged:
        if span.begin > at:
            yield Span(at, span.begin)
        at = max(at, span.end)
    if end > at:
        yield Span(at, end)
