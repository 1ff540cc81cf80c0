"""What became of each of the user's messages to a run; the messages are read again by each who goes through them."""

from __future__ import annotations

from agentrun.records.message import Message
from agentrun.records.run import Run
from agentrun.records.views import InputState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentrun.records.deliveries import Deliveries
    from agentrun.records.numbered import Numbers


# Messages that are rather passed over than looked for in the log.
NEAR = 200
# Characters of a conversation that is rather held than read again.
_SHORT = 1 << 18


class Conversation:
    """The messages of a run in order, as often as somebody goes through them: a run may have been told any number.

    `read` gives those numbered so or more, each time the same.
    """

    def __init__(self, read: Callable[[int], Iterator[Message]]) -> None:
        self._read = read

    @classmethod
    def of(cls, read: Callable[[int], Iterator[Message]]) -> Conversation:
        """The same; what is short, as most are, is read once and held."""
        held: list[Message] = []
        length = 0
        for message in read(1):
            held.append(message)
            length += len(message.text)
            if len(held) > NEAR or length > _SHORT:
                return cls(read)
        return cls(lambda since: (message for message in held if message.seq >= since))

    def __iter__(self) -> Iterator[Message]:
        return self._read(1)

    def since(self, seq: int) -> Iterator[Message]:
        """Those numbered `seq` or more."""
        return self._read(seq)

    def at(self, seq: int) -> Message | None:
        """The one of that number."""
        found = next(self._read(seq), None)
        return found if found is not None and found.seq == seq else None

    def finder(self) -> Callable[[int], Message | None]:
        """As `at`, for who asks for one after the other: what stands near the last one is read on to."""
        upcoming: Iterator[Message] = iter(())
        nowhere = -NEAR - 1
        last = nowhere

        def find(seq: int) -> Message | None:
            nonlocal upcoming, last
            if not last < seq <= last + NEAR:
                upcoming = self._read(seq)
            for found in upcoming:
                last = found.seq
                if last >= seq:
                    return found if last == seq else None
            last = nowhere
            return None

        return find


class Inputs:
    """The user's among the `messages` to `run`, each with what became of it by the events that `deliveries` are of."""

    def __init__(self, run: Run, messages: Iterable[Message], deliveries: Deliveries) -> None:
        self._run = run
        self._messages = messages
        self._deliveries = deliveries
        self._told_delivered: Numbers | None = None

    def __iter__(self) -> Iterator[InputState]:
        return (state for state in map(self.of, self._messages) if state is not None)

    def of(self, message: Message) -> InputState | None:
        """What became of `message`; None if it is nothing that the user said to the run."""
        if not message.is_input or message.run_id != self._run.run_id:
            return None
        delivery = self._deliveries.get(message.seq)
        if delivery is not None:
            return InputState(message, "delivered", turn_id=delivery.turn_id)
        if self._is_known_as_delivered(message.seq):
            # The event that says to which turn is lost, or cannot be read.
            return InputState(message, "delivered")
        if self._run.is_over:
            return InputState(message, "returned", reason=f"the run ended as {self._run.status}")
        return InputState(message, "waiting")

    def place(self, message: Message) -> int | None:
        """How many operations stand before `message`, which the run took; None if nobody knows."""
        delivery = self._deliveries.get(message.seq)
        return None if delivery is None else delivery.place

    def _is_known_as_delivered(self, seq: int) -> bool:
        if self._told_delivered is None:
            from agentrun.records.numbered import Numbers  # here: most events can be read

            self._told_delivered = Numbers(self._run.delivered_inputs)
        return seq in self._told_delivered
