"""Where on a line a moment stands. Time in which nothing happens takes little room, however long it was.

A run may wait for days for an answer; drawn true to scale, everything else would be one column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from agentrun.named import NamedTuple

# An idle stretch is squeezed if it is longer than this part of all the busy time, and than so many seconds.
_LONG, NEVER_SHORT = 0.25, 5.0
# The part of the busy time whose room a squeezed stretch takes, and that all of them take together at the most.
_SQUEEZED, _ALL_SQUEEZED = 0.06, 0.5


class Span(NamedTuple):
    """From one moment to another, in seconds since the epoch."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


class Axis:
    """Maps moments between `begin` and `end` to 0..1. `gaps` are the stretches that were squeezed.

    None of `moments` is within a gap, though nothing was under way then: each span of them is of several, of which no
    two stand further apart than `NEVER_SHORT`.
    """

    def __init__(self, begin: float, end: float, busy: Iterable[Span] = (), moments: Iterable[Span] = ()) -> None:
        self.begin, self.end = begin, max(end, begin)
        merged = _merged(span for span in busy if span.end >= self.begin and span.begin <= self.end)
        working = sum(span.seconds for span in merged)
        limit = max(working * _LONG, NEVER_SHORT)
        visible = _merged([*merged, *moments])
        self.gaps = tuple(gap for gap in _between(self.begin, self.end, visible) if working and gap.seconds > limit)
        room = working * min(_SQUEEZED, _ALL_SQUEEZED / max(len(self.gaps), 1))
        # Where what is drawn changes its scale: the moments, and what is drawn before each of them.
        self._moments, self._drawn = [self.begin], [0.0]
        for gap in self.gaps:
            self._until(gap.begin, gap.begin - self._moments[-1])
            self._until(gap.end, room)
        self._until(self.end, self.end - self._moments[-1])

    def at(self, moment: float) -> float:
        """Where `moment` stands; what is outside stands at the edge."""
        length = self._drawn[-1]
        inside = min(max(moment, self.begin), self.end)
        if not length:
            return 0.0
        part = min(max(bisect_right(self._moments, inside), 1), len(self._moments) - 1)
        begin, end = self._moments[part - 1], self._moments[part]
        share = (inside - begin) / (end - begin) if end > begin else 0.0
        return (self._drawn[part - 1] + share * (self._drawn[part] - self._drawn[part - 1])) / length

    def _until(self, moment: float, room: float) -> None:
        self._moments.append(moment)
        self._drawn.append(self._drawn[-1] + room)


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
