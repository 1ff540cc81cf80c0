"""What a search found, on a line: where, as what, and what stands around it."""

from __future__ import annotations

import re

from agentrun.records.views import Hit
from agentrun.render.safe import columns_of, shown_line
from agentrun.render.theme import Screen, Span, Style, line, say

_WHITE = re.compile(r"\s+")
# Columns of the words in front of what was found; more are shown in JSON.
_BEFORE = 24
# An excerpt of fewer columns says nothing: it then takes a line of its own.
_LEAST_EXCERPT = 36


def hit_text(hit: Hit, screen: Screen) -> str:
    """`SESSION/RUN`, the message's number, its kind, and the excerpt, cut to the screen's width."""
    # A copied message is found in its own session; the run that it speaks of is another's.
    is_copied = "/" in hit.run_id
    name = say(hit.session_id if is_copied else f"{hit.session_id}/{hit.run_id}", screen)
    kind = say((hit.mode or hit.role) + (f" of {hit.run_id}" if is_copied else ""), screen)
    head = f"{name}  {'-' if hit.seq is None else hit.seq}  {kind}"
    room = screen.width - columns_of(head) - 2
    if room >= _LEAST_EXCERPT:
        return f"{head}  {line(_excerpt(hit, screen), screen, room)}\n"
    return f"{head}\n{line([Span('  '), *_excerpt(hit, screen)], screen, screen.width)}\n"


def _excerpt(hit: Hit, screen: Screen) -> list[Span]:
    ellipsis = "…" if screen.unicode else "..."
    before, is_cut = _on_a_line(hit.before, screen), hit.is_cut[0]
    while columns_of(before) > min(_BEFORE, screen.width // 3):
        before, is_cut = before[1:], True
    after = _on_a_line(hit.after, screen).rstrip() + (ellipsis if hit.is_cut[1] else "")
    return [
        Span(ellipsis + before if is_cut else before.lstrip()),
        Span(_on_a_line(hit.text, screen), Style.STRONG),
        Span(after),
    ]


def _on_a_line(text: str, screen: Screen) -> str:
    return shown_line(_WHITE.sub(" ", text), unicode=screen.unicode)
