"""What has happened in a run, folded from its events into turns: what the loop and the context decide by.

Nothing is known here that the events do not say, so a new stretch of the run sees the same as the one before
it did. Events are taken up one after the other; the ones taken up before are never read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import count

from agentrun.agent.protocols import ModelReply
from agentrun.agent.shown import Shown
from agentrun.agent.turn import Ask, Reply, Turn, model_reply, reply_of
from agentrun.records.event import Event
from agentrun.records.operation import CHECK, MODEL, Operation, operation_of
from agentrun.states import EventType, OperationStatus

E = EventType


class Transcript:
    """The turns of one run, oldest first, and what its budgets are counted from.

    `turns_used` counts the turns that have asked the model, `calls_used` the tool calls that have been started.
    `is_ending` says that the run is being wound down, `accepted_at` when it was accepted; `shown` is what requests
    show of it.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.shown = Shown()
        self.turns_used = 0
        self.calls_used = 0
        self.tokens_used = 0
        self.accepted_at = ""
        self.is_ending = False
        self.input_mode = ""
        # Of summaries: the seq of the last event that put one in place, up to which message, and whether one failed.
        self.compacted_at = 0
        self.covered_seq = 0
        self.compaction_failed = False
        self._summaries: dict[str, Operation] = {}
        self._replies: list[Reply] = []
        self._model_replies: list[ModelReply] = []
        self._call_ids: set[str] = set()
        self._last_inputs = -1  # index of the newest turn with inputs
        self._taken = 0
        self._seq = 0  # of the event that is being taken up
        self._last_operation = 0
        self._index: dict[str, int] = {}  # turn id -> index of the turn
        self._place: dict[str, int] = {}  # operation id -> index of its turn
        self._asked_in: dict[str, int] = {}  # question id -> index of its turn

    def catch_up(self, events: Sequence[Event]) -> Transcript:
        """Takes up those of the run's `events` that are new; returns itself."""
        while self._taken < len(events):
            self._seq = events[self._taken].seq
            self._take(events[self._taken])
            self._taken += 1
        return self

    @property
    def last(self) -> Turn | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    @property
    def last_inputs(self) -> tuple[int, ...]:
        """The seqs of the messages that were delivered last."""
        return self.turns[self._last_inputs].inputs if self._last_inputs >= 0 else ()

    @property
    def next_operation_id(self) -> str:
        """`op-N`, dense over the run."""
        return next(self.new_operation_ids())

    def new_operation_ids(self) -> Iterator[str]:
        """The ids of the operations that are registered next, in their order."""
        return (f"op-{number}" for number in count(self._last_operation + 1))

    @property
    def next_turn_id(self) -> str:
        """`turn-N`, dense over the run; one that has only taken inputs in is the next one still."""
        if self.last and self.last.request is None:
            return self.last.turn_id
        return f"turn-{len(self.turns) + 1}"

    @property
    def call_ids(self) -> Set[str]:
        """The model's names of all calls so far."""
        return self._call_ids

    @property
    def replies(self) -> tuple[ModelReply, ...]:
        """All of the model's replies in the order in which they came, summaries too."""
        new = self._replies[len(self._model_replies) :]
        self._model_replies += map(model_reply, new)
        return tuple(self._model_replies)

    @property
    def tokens_in_view(self) -> int | None:
        """Tokens of the last turn's request and of its reply, as the model reported them."""
        usage = self.last.reply.usage if self.last and self.last.reply else None
        return _tokens(usage) or None

    @property
    def open_summary(self) -> Operation | None:
        """The request for a summary that has no outcome yet."""
        return next((each for each in self._summaries.values() if each.is_open), None)

    def request_of(self, operation_id: str) -> Operation | None:
        """The model request of that id, of a turn or for a summary."""
        index = self._place.get(operation_id)
        request = None if index is None else self.turns[index].request
        if request is not None and request.operation_id == operation_id:
            return request
        return self._summaries.get(operation_id)

    def _take(self, event: Event) -> None:
        take = _TAKERS.get(event.type)
        if take:
            take(self, event)
        elif event.type in _OPERATION_EVENTS:
            self._change_operation(event)

    def _turn(self, turn_id: object) -> int:
        """The index of the turn, which begins here if it is not known yet."""
        index = self._index.get(turn_id) if isinstance(turn_id, str) else None
        if index is None:
            index = len(self.turns)
            self.turns.append(Turn(str(turn_id), self._seq))
            self._index[str(turn_id)] = index
        return index

    def _put(self, index: int, turn: Turn) -> None:
        self.turns_used += (turn.request is not None) - (self.turns[index].request is not None)
        self.turns[index] = turn
        self.shown.changed(index)

    def _accepted(self, event: Event) -> None:
        self.accepted_at = event.at
        self.input_mode = str(event.payload.get("inputMode"))

    def _compacted(self, event: Event) -> None:
        covers = event.payload.get("covers")
        if event.payload.get("error") or not isinstance(covers, dict):
            self.compaction_failed = True
            return
        self.compacted_at = event.seq
        self.covered_seq = int(covers.get("messageSeq") or 0)

    def _ending(self, event: Event) -> None:
        self.is_ending = True

    def _delivered(self, event: Event) -> None:
        index = self._turn(event.payload.get("turnId"))
        turn = self.turns[index]
        self._put(index, turn._replace(inputs=turn.inputs + tuple(event.payload.get("messageSeqs") or ())))
        self._last_inputs = max(self._last_inputs, index)

    def _waiting(self, event: Event) -> None:
        index = len(self.turns) - 1
        if index < 0:
            return
        question_id = str(event.payload.get("questionId"))
        ask = Ask(question_id, event.payload.get("operationId"))
        self._asked_in[question_id] = index
        self._put(index, self.turns[index]._replace(asks=(*self.turns[index].asks, ask)))

    def _answered(self, event: Event) -> None:
        index = self._asked_in.get(str(event.payload.get("questionId")))
        if index is None:
            return
        approved, note = event.payload.get("approved"), event.payload.get("note")
        asks = tuple(
            ask._replace(answered=True, approved=approved, note=note)
            if ask.question_id == event.payload.get("questionId")
            else ask
            for ask in self.turns[index].asks
        )
        self._put(index, self.turns[index]._replace(asks=asks))

    def _change_operation(self, event: Event) -> None:
        operation_id = event.payload.get("operationId")
        if operation_id in self._summaries:
            self._summary_changed(self._summaries[operation_id], event)
            return
        if operation_id in self._place:
            self._apply(self._place[operation_id], operation_id, event)
            return
        operation = operation_of(event)
        if operation is None:
            return
        self._last_operation = max(self._last_operation, _number(operation.operation_id))
        if operation.kind == MODEL and operation.turn_id is None:
            self._summaries[operation.operation_id] = operation
            return
        index = self._turn(operation.turn_id)
        self._place[operation.operation_id] = index
        turn = self.turns[index]
        if operation.kind == MODEL:
            self._put(index, turn._replace(request=operation))
        elif operation.kind == CHECK:
            self._put(index, turn._replace(checks=(*turn.checks, operation)))
        else:
            self._put(index, turn._replace(calls=(*turn.calls, operation)))

    def _apply(self, index: int, operation_id: str, event: Event) -> None:
        turn = self.turns[index]
        if turn.request and turn.request.operation_id == operation_id:
            self._put(index, self._request_changed(turn, turn.request, event))
            return
        calls = _with_applied(turn.calls, operation_id, event)
        checks = _with_applied(turn.checks, operation_id, event)
        note = event.payload.get("note") if event.type == E.TOOL_FINISHED else _found_out(event)
        notes = turn.notes | {operation_id: note} if note else turn.notes
        changed = turn._replace(calls=calls, checks=checks, notes=notes)
        if event.type == E.TOOL_STARTED and calls is not turn.calls:
            self.calls_used += changed.call(operation_id).attempt > 0 and turn.call(operation_id).attempt == 0
        self._put(index, changed)

    def _summary_changed(self, request: Operation, event: Event) -> None:
        if event.type == E.MODEL_REQUEST_FINISHED:
            self._take_reply(event)
        self._summaries[request.operation_id] = request.apply(event)

    def _take_reply(self, event: Event) -> Reply | None:
        """Counts what the request used; its reply, if it has one."""
        self.tokens_used += _tokens(event.payload.get("usage"))
        if event.payload.get("status") != OperationStatus.SUCCEEDED:
            return None
        self._replies.append(reply_of(event.payload))
        return self._replies[-1]

    def _request_changed(self, turn: Turn, request: Operation, event: Event) -> Turn:
        if event.type == E.MODEL_REQUEST_STARTED:
            # Another attempt of the same request.
            return turn._replace(request=operation_of(event))
        if event.type == E.MODEL_REQUEST_FINISHED:
            reply = self._take_reply(event)
            self._call_ids.update(str(call.get("id")) for call in (reply.calls if reply else ()))
            turn = turn._replace(reply=reply or turn.reply)
        return turn._replace(request=request.apply(event))


_TAKERS: dict[str, Callable[[Transcript, Event], None]] = {
    E.RUN_ACCEPTED: Transcript._accepted,
    E.RUN_CANCEL_REQUESTED: Transcript._ending,
    E.RUN_FAILING: Transcript._ending,
    E.RUN_COMPACTED: Transcript._compacted,
    E.INPUT_DELIVERED: Transcript._delivered,
    E.RUN_WAITING_INPUT: Transcript._waiting,
    E.RUN_INPUT_RECEIVED: Transcript._answered,
}
_OPERATION_EVENTS = frozenset(
    {
        E.MODEL_REQUEST_STARTED,
        E.MODEL_REQUEST_FINISHED,
        E.TOOL_REGISTERED,
        E.TOOL_STARTED,
        E.TOOL_REMOTE_ID,
        E.TOOL_FINISHED,
        E.OPERATION_CANCEL_REQUESTED,
        E.OPERATION_RECONCILED,
        E.OPERATION_LATE_RESULT,
    }
)


def _with_applied(operations: tuple[Operation, ...], operation_id: str, event: Event) -> tuple[Operation, ...]:
    """The same with the one of that id after `event`; it is one of the newest more often than not."""
    for index in range(len(operations) - 1, -1, -1):
        if operations[index].operation_id == operation_id:
            return (*operations[:index], operations[index].apply(event), *operations[index + 1 :])
    return operations


def _found_out(event: Event) -> str | None:
    """What the model is told of how an outcome became known, where that is all there is to tell."""
    payload = event.payload
    note = payload.get("note")
    is_finding = event.type in (E.OPERATION_RECONCILED, E.OPERATION_LATE_RESULT)
    is_certain = payload.get("status") in (OperationStatus.SUCCEEDED, OperationStatus.FAILED)
    if not (is_finding and is_certain) or (payload.get("result") is not None and not note):
        return None
    said = f": {note}" if note else ""
    return f"This was found out afterwards, by {payload.get('evidence') or 'somebody'}{said}"


def _number(operation_id: str) -> int:
    digits = operation_id.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0


def _tokens(usage: object) -> int:
    if not isinstance(usage, dict):
        return 0
    counts = (usage.get("inputTokens"), usage.get("outputTokens"))
    return sum(count for count in counts if isinstance(count, int))
