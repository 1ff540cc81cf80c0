"""Saying of a run that is watched that its executor does not get on, or that of the run ahead of it.

Whoever waits would do so without a word.
"""

from __future__ import annotations

from agentrun.records.views import RunView
from agentrun.render.standing import late_text
from agentrun.render.theme import Screen


class LateNote:
    """Remembers what was said of which run, so that it is said once, and again when something else keeps it up."""

    def __init__(self) -> None:
        self._said: dict[str, str | None] = {}

    def news(self, view: RunView, screen: Screen) -> str:
        """What a person should be told now; mostly nothing."""
        name = f"{view.run.session_id}/{view.run.run_id}"
        cause = view.late.cause if view.late else view.frozen_ahead
        if self._said.get(name) == cause:
            return ""
        self._said[name] = cause
        return late_text(view, screen) if cause else ""
