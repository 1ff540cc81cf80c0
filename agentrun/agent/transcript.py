"""What has happened in a run, folded from its events into turns: what the loop and the context decide by.

Nothing is known here that the events do not say, so a new stretch of the run sees the same as the one before
it did. Events are taken up one after the other; the ones taken up before are never read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agentrun.agent.protocols import ChatMessage, ModelReply, StopReason, ToolCall
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import CHECK, MODEL, Operation, operation_of
from agentrun.states import EventType, OperationStatus

E = EventType


class Reply(NamedTuple):
    """A whole reply of the model."""

    text: str
    calls: tuple[Doc, ...]
    question: str | None
    stop_reason: str | None
    usage: Doc | None
    extra: Doc


class Ask(NamedTuple):
    """A question that was put to the user; `operation_id` names the call that an approval is for.

    `approved` is None as long as no approval or denial is stored, and for the answer to a question.
    """

    question_id: str
    operation_id: str | None
    answered: bool = False
    approved: bool | None = None
    note: str | None = None


class Turn(NamedTuple):
    """One model request and the calls of its reply, in the order in which the model asked for them.

    `begun_at` is the seq of its first event, `inputs` are the seqs of the messages that were delivered with the
    request. `reply` is None while there is none, also if the request failed or was stopped. `checks` are those that the
    reply, as a draft, was given to. `notes` are what was noted of calls, by operation id; `asks` what the user was
    asked after the reply.
    """

    turn_id: str
    begun_at: int = 0
    inputs: tuple[int, ...] = ()
    request: Operation | None = None
    reply: Reply | None = None
    calls: tuple[Operation, ...] = ()
    checks: tuple[Operation, ...] = ()
    notes: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory
    asks: tuple[Ask, ...] = ()

    def call(self, operation_id: str) -> Operation:
        """The call of that id. Raises KeyError."""
        for operation in self.calls:
            if operation.operation_id == operation_id:
                return operation
        raise KeyError(operation_id)

    def call_of(self, tool_call_id: str) -> Operation | None:
        """The operation that the model's call became, or None if it was not registered."""
        return next((each for each in self.calls if each.tool_call_id == tool_call_id), None)

    def approval_of(self, operation_id: str) -> Ask | None:
        """The newest approval that was asked for that call."""
        return next((ask for ask in reversed(self.asks) if ask.operation_id == operation_id), None)

    @property
    def question(self) -> Ask | None:
        """The question of the reply as it was put to the user, or None as long as it was not."""
        return next((ask for ask in reversed(self.asks) if ask.operation_id is None), None)


class Transcript:
    """The turns of one run, oldest first, and what its budgets are counted from.

    `is_ending` says that the run is being wound down, `accepted_at` when it was accepted.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
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
        self._told: dict[str, tuple[Turn, tuple[ChatMessage, ...]]] = {}
        self._taken = 0
        self._seq = 0  # of the event that is being taken up
        self._last_operation = 0
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
    def next_operation_id(self) -> str:
        """`op-N`, dense over the run."""
        return f"op-{self._last_operation + 1}"

    @property
    def next_turn_id(self) -> str:
        """`turn-N`, dense over the run; one that has only taken inputs in is the next one still."""
        if self.last and self.last.request is None:
            return self.last.turn_id
        return f"turn-{len(self.turns) + 1}"

    @property
    def turns_used(self) -> int:
        """How many turns have asked the model."""
        return sum(turn.request is not None for turn in self.turns)

    @property
    def calls_used(self) -> int:
        """How many tool calls have been started."""
        return sum(call.attempt > 0 for turn in self.turns for call in turn.calls)

    @property
    def call_ids(self) -> set[str]:
        """The model's names of all calls so far."""
        replies = (turn.reply for turn in self.turns if turn.reply)
        return {str(call["id"]) for reply in replies for call in reply.calls}

    @property
    def replies(self) -> tuple[ModelReply, ...]:
        """All of the model's replies in the order in which they came, summaries too."""
        new = self._replies[len(self._model_replies) :]
        self._model_replies += map(_model_reply, new)
        return tuple(self._model_replies)

    def once(self, turn: Turn, tell: Callable[[Turn], Iterable[ChatMessage]]) -> tuple[ChatMessage, ...]:
        """What `tell` says of a turn, asked again only once something of the turn has changed.

        Each request tells of all turns: without this a long run would take ever longer from turn to turn.
        """
        told = self._told.get(turn.turn_id)
        if told is None or told[0] is not turn:
            told = self._told[turn.turn_id] = turn, tuple(tell(turn))
        return told[1]

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
        requests = (turn.request for turn in reversed(self.turns) if turn.request)
        found = next((each for each in requests if each.operation_id == operation_id), None)
        return found or self._summaries.get(operation_id)

    def _take(self, event: Event) -> None:
        take = _TAKERS.get(event.type)
        if take:
            take(self, event)
        elif event.type in _OPERATION_EVENTS:
            self._change_operation(event)

    def _turn(self, turn_id: object) -> int:
        """The index of the turn, which begins here if it is not known yet."""
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index].turn_id == turn_id:
                return index
        self.turns.append(Turn(str(turn_id), self._seq))
        return len(self.turns) - 1

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
        self.turns[index] = turn._replace(inputs=turn.inputs + tuple(event.payload.get("messageSeqs") or ()))

    def _waiting(self, event: Event) -> None:
        index = len(self.turns) - 1
        if index < 0:
            return
        question_id = str(event.payload.get("questionId"))
        ask = Ask(question_id, event.payload.get("operationId"))
        self._asked_in[question_id] = index
        self.turns[index] = self.turns[index]._replace(asks=(*self.turns[index].asks, ask))

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
        self.turns[index] = self.turns[index]._replace(asks=asks)

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
            self.turns[index] = turn._replace(request=operation)
        elif operation.kind == CHECK:
            self.turns[index] = turn._replace(checks=(*turn.checks, operation))
        else:
            self.turns[index] = turn._replace(calls=(*turn.calls, operation))

    def _apply(self, index: int, operation_id: str, event: Event) -> None:
        turn = self.turns[index]
        if turn.request and turn.request.operation_id == operation_id:
            self.turns[index] = self._request_changed(turn, turn.request, event)
            return
        calls = tuple(call.apply(event) if call.operation_id == operation_id else call for call in turn.calls)
        checks = tuple(each.apply(event) if each.operation_id == operation_id else each for each in turn.checks)
        note = event.payload.get("note") if event.type == E.TOOL_FINISHED else _found_out(event)
        notes = turn.notes | {operation_id: note} if note else turn.notes
        self.turns[index] = turn._replace(calls=calls, checks=checks, notes=notes)

    def _summary_changed(self, request: Operation, event: Event) -> None:
        if event.type == E.MODEL_REQUEST_FINISHED:
            self._take_reply(event)
        self._summaries[request.operation_id] = request.apply(event)

    def _take_reply(self, event: Event) -> Reply | None:
        """Counts what the request used; its reply, if it has one."""
        self.tokens_used += _tokens(event.payload.get("usage"))
        if event.payload.get("status") != OperationStatus.SUCCEEDED:
            return None
        self._replies.append(_reply(event.payload))
        return self._replies[-1]

    def _request_changed(self, turn: Turn, request: Operation, event: Event) -> Turn:
        if event.type == E.MODEL_REQUEST_STARTED:
            # Another attempt of the same request.
            return turn._replace(request=operation_of(event))
        if event.type == E.MODEL_REQUEST_FINISHED:
            turn = turn._replace(reply=self._take_reply(event) or turn.reply)
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


def _reply(payload: Doc) -> Reply:
    question = payload.get("question")
    return Reply(
        text=str(payload.get("text") or ""),
        calls=tuple(call for call in payload.get("toolCalls") or () if isinstance(call, dict)),
        question=question if isinstance(question, str) else None,
        stop_reason=payload.get("stopReason"),
        usage=payload.get("usage"),
        extra=payload.get("extra") or {},
    )


_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_turn_requests",
    "refusal": "refusal",
    "cancelled": "cancelled",
}


def _model_reply(reply: Reply) -> ModelReply:
    return ModelReply(
        text=reply.text,
        calls=tuple(tool_call(call) for call in reply.calls),
        question=reply.question,
        stop_reason=_STOP_REASONS.get(str(reply.stop_reason), "end_turn"),
        usage=reply.usage,
        extra=reply.extra,
    )


def tool_call(call: Doc) -> ToolCall:
    """The call of a reply, as the model asked for it."""
    arguments = call.get("arguments")
    return ToolCall(str(call.get("id")), str(call.get("name")), arguments if isinstance(arguments, dict | str) else {})
