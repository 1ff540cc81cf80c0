"""A directory of the tree that has yet to be made, for those who come before it: readers find nothing in it."""

from __future__ import annotations

import os

from agentrun.errors import NotFound
from agentrun.store.disk import Directory


class Expected(Directory):
    """The directory `name` in `parent` that has yet to be made: readers find nothing in it until it is there.

    Whoever makes a file in it makes it.
    """

    def __init__(self, parent: Directory, name: str) -> None:
        super().__init__(-1, parent.at(name))
        self._parent = parent
        self._name = name

    def is_there(self) -> bool:
        """Whether it has been made; then it is opened."""
        if self.fd < 0:
            try:
                opened = self._parent.open(self._name)
            except NotFound:
                return False
            self.fd, opened.fd = opened.fd, -1
        return True

    def stat(self, name: str) -> os.stat_result | None:
        """As of any directory."""
        return super().stat(name) if self.is_there() else None

    def has(self, name: str) -> bool:
        """As of any directory."""
        return self.is_there() and super().has(name)

    def _open_with_length(self, name: str, flags: int, names: int) -> tuple[int, int] | None:
        if flags & os.O_CREAT:
            self._parent.make(self._name)
        return super()._open_with_length(name, flags, names) if self.is_there() else None
