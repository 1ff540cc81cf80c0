"""When each of the user's messages was taken by its run, and where among the operations that was."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from agentrun.named import NamedTuple
from agentrun.records.event import Event
from agentrun.records.operation import Operation
from agentrun.states import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

E = EventType
# Numbers of messages and of operations that fit beside one another into 64 bits; there are no others.
_BITS = 32


class Delivery(NamedTuple):
    """A message was taken `at` that time, in `turn_id` unless it settled a call.

    `place` is how many operations were registered before: before the first one of the turn that it belongs to.
    """

    at: str
    turn_id: str | None
    place: int


class Deliveries:
    """What the events tell of the user's messages, by their numbers, in some fifty bytes of each that was taken alone.

    `add` takes all events, oldest first.
    """

    def __init__(self) -> None:
        # Number of the message and index of its delivery, in one; of one that was taken twice the last counts.
        self._taken = array("Q")
        self._is_sorted = True
        # Of each delivery: its place, and where its words end.
        self._places = array("Q")
        self._ends = array("Q")
        self._words = bytearray()
        self._registered = 0
        # What was asked for last: several messages are taken at once, and each is asked for several times.
        self._last: tuple[int, Delivery | None] = (-1, None)
        # The turn of the operation that was registered last, and how many stand before it.
        self._turn: tuple[object, int] = (None, 0)

    def add(self, event: Event, registered: Operation | None) -> None:
        """Takes one event; `registered` is the operation that it registers, if it does."""
        payload = event.payload
        if registered is not None:
            if registered.turn_id != self._turn[0]:
                self._turn = registered.turn_id, self._registered
            self._registered += 1
        elif event.type == E.INPUT_DELIVERED:
            self._put(event.at, payload.get("turnId"), payload.get("messageSeqs") or ())
        elif event.type == E.RUN_INPUT_RECEIVED and "approved" in payload:
            seq = payload.get("messageSeq")
            self._put(event.at, None, () if seq is None else (seq,))

    def get(self, seq: int) -> Delivery | None:
        """How the message was taken; None if it was not."""
        index = self._index_of(seq)
        if index is None:
            return None
        if index != self._last[0]:
            self._last = index, self._delivery(index)
        return self._last[1]

    def _index_of(self, seq: int) -> int | None:
        if not 0 <= seq < 1 << _BITS:
            return None
        if not self._is_sorted:
            self._taken = array("Q", sorted(self._taken))
            self._is_sorted = True
        behind = bisect_left(self._taken, (seq + 1) << _BITS)
        if not behind or self._taken[behind - 1] >> _BITS != seq:
            return None
        return self._taken[behind - 1] & ((1 << _BITS) - 1)

    def _put(self, at: str, turn_id: str | None, seqs: Iterable[int]) -> None:
        index = len(self._places)
        for seq in seqs:
            if 0 <= seq < 1 << _BITS:
                taken = seq << _BITS | index
                self._is_sorted = self._is_sorted and (not self._taken or self._taken[-1] < taken)
                self._taken.append(taken)
        is_under_way = turn_id is not None and turn_id == self._turn[0]
        self._places.append(self._turn[1] if is_under_way else self._registered)
        self._words += at.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._words))
        self._words += b"" if turn_id is None else b"\n" + str(turn_id).encode("utf-8", "surrogatepass")
        self._ends.append(len(self._words))

    def _delivery(self, index: int) -> Delivery:
        begin = self._ends[2 * index - 1] if index else 0
        middle, end = self._ends[2 * index], self._ends[2 * index + 1]
        at, turn = (self._words[a:b].decode("utf-8", "surrogatepass") for a, b in ((begin, middle), (middle, end)))
        return Delivery(at, turn[1:] if turn else None, self._places[index])
