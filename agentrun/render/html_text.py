"""Stored text in a page: escaped twice over, for its reader (`safe.shown`) and for the browser.

No character of a stored text is ever markup, and none is invisible or turns its neighbours around.
"""

from __future__ import annotations

import html

from agentrun.render.safe import shown, shown_line
from agentrun.render.theme import Mark, Style

CLASS_OF: dict[Style, str] = {
    Style.PLAIN: "plain",
    Style.STRONG: "strong",
    Style.DIM: "dim",
    Style.GOOD: "good",
    Style.BAD: "bad",
    Style.CARE: "care",
    Style.BUSY: "busy",
}


def inline(text: str) -> str:
    """Text on one line. Isolated, so that a language that is written from the right moves nothing beside it."""
    return f"<bdi>{attribute(text)}</bdi>"


def attribute(text: str) -> str:
    """Text on one line, as the value of an attribute as well."""
    return html.escape(shown_line(text), quote=True)


def block(text: str, kind: str = "") -> str:
    """Text in full, its lines as they are; `kind` is a class of the style sheet."""
    return f'<pre class="text {kind}" dir="auto">{html.escape(shown(text.strip(chr(10))), quote=True)}</pre>\n'


def sign(mark: Mark) -> str:
    """A mark in its colour; what it means is said in words beside it."""
    return f'<span class="mark {CLASS_OF[mark.style]}" aria-hidden="true">{mark.sign}</span>'


def when(at: str | None) -> str:
    """A stored time for people and programs; nothing if there is none. In UTC: who reads it may be anywhere."""
    if not at:
        return ""
    readable = f"{at[:10]} {at[11:19]} UTC" if len(at) >= 19 and at.endswith("Z") else at
    return f'<time datetime="{attribute(at)}">{inline(readable)}</time>'
