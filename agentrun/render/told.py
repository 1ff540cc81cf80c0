"""What a live view knows of its run, and what of it has been told: each line of the record comes once."""

from __future__ import annotations

from agentrun.records.event import Event
from agentrun.records.message import ENDED, Message
from agentrun.records.numbered import Numbers
from agentrun.records.operation import Operation, operation_of
from agentrun.records.run import Run, accepted_run
from agentrun.records.views import InputState, RunDetail
from agentrun.render import hints
from agentrun.render.happened import happened, is_final_reply, reply_text
from agentrun.render.safe import excerpt
from agentrun.render.theme import QUESTION, Screen, Span, line, marked
from agentrun.render.transcript import block, input_lines, message_lines, run_head
from agentrun.states import EventType, RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")
    U = TypeVar("U")

E = EventType

# While it waits for others, no time of the run is counted.
_STANDS_STILL = frozenset({RunStatus.QUEUED, RunStatus.WAITING_INPUT})

# Events after which a reply that was held back as the likely report is a reply like any other.
_GOES_ON = frozenset(
    {
        E.INPUT_DELIVERED,
        E.MODEL_REQUEST_STARTED,
        E.RUN_WAITING_INPUT,
        E.RUN_CANCEL_REQUESTED,
        E.RUN_FAILING,
    }
)


# Operations that are over and inputs that wait which are held, the newest of each. A run may have any number of them.
_HELD = 1000


class Told:
    """The run as its events tell it so far. Each method returns the lines that it adds to the record."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.turn_id: str | None = None
        self._open: dict[str, Operation] = {}
        self._over: dict[str, Operation] = {}
        # What waits; and in which turns those were taken whose texts have not come yet.
        self._inputs: dict[int, Message] = {}
        self._turns: dict[int, str | None] = {}
        self._told_inputs = Numbers()
        self._seen_events = 0
        self._seen_messages = Numbers()
        self._told_question: object = None
        self._held: list[str] = []

    @property
    def is_going_on(self) -> bool:
        """Whether the run is under way, so that there are times which grow."""
        return self.run is not None and not self.run.is_over and self.run.status not in _STANDS_STILL

    @property
    def open_operations(self) -> list[Operation]:
        """What has no outcome yet, in the order in which it was registered."""
        return list(self._open.values())

    @property
    def waiting_inputs(self) -> list[Message]:
        """What the user said and the run has not taken yet; of much of it the newest."""
        run_id = self.run.run_id if self.run else None
        return [message for message in self._inputs.values() if message.run_id == run_id]

    def forgotten(self, event: Event) -> list[int]:
        """The numbers of the messages that `event` tells of and whose texts, which came long ago, are not held."""
        if event.type != E.INPUT_DELIVERED:
            return []
        untold = (seq for seq in event.payload.get("messageSeqs") or () if seq not in self._told_inputs)
        return [seq for seq in untold if seq in self._seen_messages and seq not in self._inputs]

    def event(self, event: Event, screen: Screen) -> list[str]:
        """Something happened. An event that was seen before adds nothing."""
        if event.seq <= self._seen_events:
            return []
        self._seen_events = event.seq
        lines = self.question(screen) if event.type == E.RUN_INPUT_RECEIVED else []
        if event.type in _GOES_ON:
            lines += self._release()
        operation = self._fold(event)
        lines += happened(event, operation, screen)
        seq = event.payload.get("messageSeq")
        if event.type == E.RUN_INPUT_RECEIVED and "approved" in event.payload and type(seq) is int:
            # What settles a call goes to no turn: it is taken now.
            lines += self._delivered(seq, None, screen)
        if event.type == E.INPUT_DELIVERED:
            for seq in event.payload.get("messageSeqs") or ():
                lines += self._delivered(seq, event.payload.get("turnId"), screen)
        if operation and is_final_reply(event):
            self._held = reply_text(operation, screen)
        return lines

    def message(self, message: Message, screen: Screen) -> list[str]:
        """Something was said: the user's words are told when the run has taken them.

        Questions, the report and the end add nothing: they have events, and are told at their place.
        """
        if self.run and message.run_id != self.run.run_id:
            return []
        is_new = message.seq not in self._seen_messages
        self._seen_messages.add(message.seq)
        if message.role == "system" and message.mode != ENDED and is_new:
            return message_lines(message, screen)
        if not message.is_input or message.seq in self._told_inputs:
            return []
        self._inputs[message.seq] = message
        _forget_oldest(self._inputs)
        return self._taken(message.seq, screen) if message.seq in self._turns else []

    def question(self, screen: Screen) -> list[str]:
        """The question that is open, unless it was told before."""
        waiting = self.run.waiting_for if self.run else None
        if not waiting or waiting.get("questionId") == self._told_question:
            return []
        self._told_question = waiting.get("questionId")
        head = line([marked(QUESTION, screen), Span(" question", QUESTION.style)], screen)
        return [head, *block(str(waiting.get("text") or ""), screen)]

    def end(self, detail: RunDetail, screen: Screen, now: float) -> list[str]:
        """How the run stands, what it left, and what to do. The report is left to the caller."""
        lines = self._release() if detail.report is None else []
        for state in detail.inputs:
            if state.message.seq not in self._told_inputs:
                lines += input_lines(state, screen)
        run = detail.view.run
        lines.append(run_head(detail.view, screen, now))
        if run.reason:
            lines.append(f"  reason: {excerpt(run.reason, max(screen.width - 10, 1), unicode=screen.unicode)}")
        return lines + hints.attention(detail.view, screen, now)

    def _fold(self, event: Event) -> Operation | None:
        """Takes `event` in. Returns the operation that it names."""
        operation_id = event.payload.get("operationId")
        known = self._known(operation_id) if isinstance(operation_id, str) else None
        if self.run is not None:
            self.run = self.run.fold([event])
        elif event.type == E.RUN_ACCEPTED:
            self.run = accepted_run(event)
        if event.type == E.MODEL_REQUEST_STARTED:
            self.turn_id = event.payload.get("turnId")
        operation = known.apply(event) if known else operation_of(event)
        if operation is not None:
            self._hold(operation)
        return operation

    def _known(self, operation_id: str) -> Operation | None:
        found = self._open.get(operation_id) or self._over.get(operation_id)
        if found is not None or self.run is None:
            return found
        # What is to be settled yet is told of whenever that may be.
        return next((each for each in self.run.unresolved_operations if each.operation_id == operation_id), None)

    def _hold(self, operation: Operation) -> None:
        if operation.is_open:
            self._over.pop(operation.operation_id, None)
            self._open[operation.operation_id] = operation
        else:
            self._open.pop(operation.operation_id, None)
            self._over[operation.operation_id] = operation
            _forget_oldest(self._over)

    def _delivered(self, seq: int, turn_id: str | None, screen: Screen) -> list[str]:
        if seq in self._told_inputs:
            return []
        self._turns[seq] = turn_id
        return self._taken(seq, screen)

    def _taken(self, seq: int, screen: Screen) -> list[str]:
        """The user's message `seq`, which the run has taken; nothing if its text has not come yet."""
        message = self._inputs.pop(seq, None)
        if message is None:
            return []
        self._told_inputs.add(seq)
        return input_lines(InputState(message, "delivered", turn_id=self._turns.pop(seq)), screen)

    def _release(self) -> list[str]:
        held, self._held = self._held, []
        return held


def _forget_oldest(held: dict[T, U]) -> None:
    if len(held) > _HELD:
        del held[next(iter(held))]
