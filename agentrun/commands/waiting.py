"""Waiting for several runs at once, until each has ended, waits for the user, or has nobody who drives it."""

from __future__ import annotations

from collections.abc import Sequence

from agentrun.commands.show import Standstill, told
from agentrun.records.views import RunView
from agentrun.store.runs import RunDir
from agentrun.store.watch import Watch


class Vigil:
    """Watches runs. `look` says what has come to stand; a run that is queued, or winds down, is waited for."""

    def __init__(self, run_dirs: Sequence[RunDir]) -> None:
        # One watch for all: the kernel grants a user few of them.
        self._watch = Watch(*(run_dir.directory for run_dir in run_dirs))
        self._awaited = [Standstill(run_dir) for run_dir in run_dirs]
        # How those stood at the last look that are still waited for.
        self.going_on: list[RunView] = []

    @property
    def awaited(self) -> list[RunDir]:
        """The runs that do not stand yet."""
        return [each.run_dir for each in self._awaited]

    def look(self) -> list[RunView]:
        """The runs that stand since the last look; they are awaited no more."""
        found = [(each, told(each.run_dir)) for each in self._awaited]
        standing = [(each, view) for each, view in found if each.has_come(view)]
        self.going_on = [view for one, view in found if all(one is not each for each, _ in standing)]
        for each, _ in standing:
            self._awaited.remove(each)
        return [view for _, view in standing]

    def wait(self, seconds: float | None) -> None:
        """Returns when something may have changed, after `seconds` at the most. A death is seen within a second."""
        self._watch.wait(seconds)

    def close(self) -> None:
        """Stops watching."""
        self._watch.close()
