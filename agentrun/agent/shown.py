"""What a request shows of a run's turns, kept from one request to the next.

Each request shows all turns. Made anew each time, it would take ever longer from turn to turn: so only what has changed
is made again, which is the newest turn but for a finding that comes late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentrun.agent.protocols import ChatMessage
from agentrun.agent.turn import Turn
from agentrun.records.operation import Operation
from agentrun.states import OperationStatus


class Shown:
    """The messages of all turns one after the other, and the last call of each tool.

    Whoever changes a turn says so by `changed`.
    """

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._ends: list[int] = []  # by turn, behind its last message
        self._covered = 0
        self._last: dict[str, tuple[Turn, Operation]] = {}
        self._looked_at = 0  # turns that `_last` was made of

    def changed(self, index: int) -> None:
        """The turn of that index is new, or not what it was."""
        if index < len(self._ends):
            del self._ends[index:]
            del self._messages[self._ends[-1] if self._ends else 0 :]
        if index < self._looked_at:
            self._last, self._looked_at = {}, 0

    def messages(
        self, turns: Sequence[Turn], covered: int, tell: Callable[[Turn], Iterable[ChatMessage]]
    ) -> Sequence[ChatMessage]:
        """What `tell` says of each of `turns`; it depends on nothing but the turn and what is `covered`."""
        if covered != self._covered:
            self._covered = covered
            self.changed(0)
        for index in range(len(self._ends), len(turns)):
            self._messages += tell(turns[index])
            self._ends.append(len(self._messages))
        return self._messages

    def last_calls(self, turns: Sequence[Turn]) -> dict[str, tuple[Turn, Operation]]:
        """By tool, its last call that is over; one that was never started if there is no other."""
        # The newest turn changes until the next one begins.
        for turn in turns[self._looked_at : -1]:
            _take(self._last, turn)
        self._looked_at = max(len(turns) - 1, 0)
        last = dict(self._last)
        for turn in turns[self._looked_at :]:
            _take(last, turn)
        return last


def _take(last: dict[str, tuple[Turn, Operation]], turn: Turn) -> None:
    for call in turn.calls:
        if not call.is_open and (call.status is not OperationStatus.SKIPPED or call.name not in last):
            last[call.name] = turn, call
