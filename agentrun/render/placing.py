"""Where each message of a run stands among its operations, which are read and let go: a run may have ten thousand."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from agentrun.records.message import ANSWER, ENDED, REPORT, Message
from agentrun.records.message import QUESTION as QUESTION_MODE
from agentrun.records.operation import Operation
from agentrun.records.views import InputState, RunDetail
from agentrun.render.times import moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Step = Operation | InputState | Message


def steps(detail: RunDetail, operations: Callable[[], Iterable[Operation]] | None = None) -> Iterator[Step]:
    """What the run met, in order; what became the report, and what is still open, stands elsewhere.

    `operations` gives all of them from the first on, each time that it is asked; None: those of `detail`.
    """
    each_time = operations or (lambda: detail.operations)
    said = _placed(detail, each_time)
    upcoming = 0
    for number, operation in enumerate(each_time()):
        while upcoming < len(said) and said[upcoming][0] <= number:
            yield said[upcoming][2]
            upcoming += 1
        yield operation
    yield from (step for *_, step in said[upcoming:])


def _placed(
    detail: RunDetail, operations: Callable[[], Iterable[Operation]]
) -> list[tuple[int, int, InputState | Message]]:
    """The messages in order, each with the index of the operation that it stands before, and its own number."""
    states = {state.message.seq: state for state in detail.inputs}
    answers = {state.message.question_id: state for state in reversed(detail.inputs)}
    shown = [message for message in detail.messages if not _is_told_elsewhere(message, detail)]
    becoming = [answers.get(each.question_id) if _asks(each) else states.get(each.seq) for each in shown]
    places = _Places(
        {state.turn_id for state in becoming if state is not None and state.turn_id},
        {message.at for message in shown if message.mode in (QUESTION_MODE, ANSWER)},
        operations(),
    )
    found: list[tuple[int, int, InputState | Message]] = [
        (places.of(message, state), message.seq, states.get(message.seq) or message)
        for message, state in zip(shown, becoming, strict=True)
    ]
    return sorted(found, key=lambda each: each[:2])


def _asks(message: Message) -> bool:
    return message.mode == QUESTION_MODE and bool(message.question_id)


def _is_told_elsewhere(message: Message, detail: RunDetail) -> bool:
    """The report, the open question and the end stand below, with what to do about them."""
    if message.role == "system":
        return message.mode == ENDED
    if message.role != "assistant":
        return False
    if message.mode == REPORT:
        return detail.report is not None
    run = detail.view.run
    return bool(run.waiting_for) and message.question_id == (run.waiting_for or {}).get("questionId")


class _Places:
    """Where the first operation of each of `turns` stands, and how many had been registered at each of `times`."""

    def __init__(self, turns: set[str], times: set[str], operations: Iterable[Operation]) -> None:
        asked = sorted({at for at in map(moment, times) if at is not None})
        registered = [0] * (len(asked) + 1)
        self._turns: dict[str, int] = {}
        self._count = 0
        for operation in operations:
            if operation.turn_id in turns:
                self._turns.setdefault(operation.turn_id, self._count)
            begun = moment(operation.registered_at) if asked else None
            if begun is not None:
                registered[bisect_left(asked, begun)] += 1
            self._count += 1
        self._by_time = dict(zip(asked, accumulate(registered), strict=False))

    def of(self, message: Message, state: InputState | None) -> int:
        """The index of the operation that `message` stands before; `state` says what became of it, or of its answer."""
        if state is None or state.state != "delivered":
            return self._count
        if state.turn_id:
            # The turn may have been cut off at the front: then it stands before all that is left.
            return self._turns.get(state.turn_id, 0)
        if message.mode not in (QUESTION_MODE, ANSWER):
            return self._count
        # An approval, which no turn delivers: nothing else says where it stood.
        asked = moment(message.at)
        return self._count if asked is None else self._by_time[asked]
