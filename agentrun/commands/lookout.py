"""Watching a list of sessions: said again when something in it has changed, at no cost while nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable

from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.records.session import Session
from agentrun.records.views import RunView, SessionRow
from agentrun.store.tree import Tree

# Reading the whole list again may take this part of the time.
_PART = 0.01
_LEAST_PAUSE = 10.0


class Seen(NamedTuple):
    """What a person is told of a session in a list: a row that differs in nothing of it is no news."""

    session: Session
    run_id: str | None
    standing: tuple[object, ...]


def seen(row: SessionRow) -> Seen:
    """What of `row` is news if it changes; that a run goes on as before is none."""
    view = row.newest
    if view is None:
        return Seen(row.session, None, ())
    unresolved = tuple(operation.operation_id for operation in view.run.unresolved_operations)
    standing = (view.words, view.executor, view.stop_asked, view.overdue, unresolved)
    return Seen(row.session, view.run.run_id, standing)


class Lookout:
    """A list that is watched. `read` reads all of it; `look` does so when there may be something new."""

    def __init__(self, tree: Tree, read: Callable[[], list[SessionRow]]) -> None:
        self._tree = tree
        self._read = read
        self._watch = tree.watch()
        self._rows: list[SessionRow] = []
        self._marks: dict[str, object] = {}
        self._due = 0.0
        self._looks = 1

    def wait(self) -> None:
        """Returns when something may have changed, after a second at the most: a death is reported by nobody."""
        if self._watch.wait(None):
            # What is noted is noted before it happens: looked at once more, a moment later.
            self._looks = 2

    def close(self) -> None:
        """Stops watching."""
        self._watch.close()

    def look(self) -> list[SessionRow]:
        """The list as it is now."""
        marks = self._look_at_shown()
        if self._looks or marks != self._marks or time.monotonic() >= self._due:
            self._looks = max(self._looks - 1, 0)
            begun = time.monotonic()
            self._rows = self._read()
            now = time.monotonic()
            self._due = now + max((now - begun) / _PART, _LEAST_PAUSE)
            marks = self._look_at_shown()
        self._marks = marks
        return self._rows

    def _look_at_shown(self) -> dict[str, object]:
        """What tells of a change in the sessions that are listed, without reading their history."""
        marks = self._tree.written(row.session.session_id for row in self._rows)
        for row in self._rows:
            if row.newest is not None and not row.newest.run.is_over:
                marks[f"{row.session.session_id}/{row.newest.run.run_id}"] = self._standing(row, row.newest)
        return marks

    def _standing(self, row: SessionRow, view: RunView) -> Seen | None:
        try:
            run_dir = self._tree.session(row.session.session_id).run(view.run.run_id)
            return seen(row._replace(newest=run_dir.view()))
        except AgentrunError:
            return None  # it was removed, or whoever reads the list will say what is wrong
