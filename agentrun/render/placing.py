"""Where each message of a run stands among its operations: both are read and let go, a run may have any number."""

from __future__ import annotations

from itertools import islice

from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.message import QUESTION as QUESTION_MODE
from agentrun.records.operation import Operation
from agentrun.records.views import InputState, RunDetail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Iterator

Step = Operation | InputState | Message
# The index of the operation that a message stands before, and its own number, fit beside one another into 64 bits.
_BITS = 32
_LAST = (1 << _BITS) - 1


def steps(detail: RunDetail, operations: Callable[[], Iterable[Operation]] | None = None) -> Iterator[Step]:
    """What the run met, in order; what became the report, and what is still open, stands elsewhere.

    `operations` gives all of them from the first on; None: those of `detail`.
    """
    said = _said(detail)
    place, step = next(said, (None, None))
    for number, operation in enumerate(operations() if operations else detail.operations):
        while step is not None and place is not None and place <= number:
            yield step
            place, step = next(said, (None, None))
        yield operation
    if step is not None:
        yield step
        yield from (step for _, step in said)


def _said(detail: RunDetail) -> Iterator[tuple[int, InputState | Message]]:
    """The messages in the order in which they are shown, each with the index of the operation that it stands before."""
    places, is_in_order = _places(detail)
    if not is_in_order:  # nor does anybody find a number in such a log
        found = sorted(zip(places, _shown(detail), strict=True), key=lambda each: each[0])
        yield from ((each >> _BITS, detail.inputs.of(message) or message) for each, message in found)
        return
    from agentrun.records.inputs import NEAR  # here: as below

    messages, last = iter(detail.messages), 0
    for each in _sorted(places):
        seq = each & _LAST
        if not last <= seq <= last + NEAR:
            messages = _since(detail.messages, seq)
        last = seq
        for message in messages:
            if message.seq >= seq:
                yield each >> _BITS, detail.inputs.of(message) or message
                break


def _places(detail: RunDetail) -> tuple[array[int], bool]:
    """Of each message that is shown, in the order of the log: before which operation it stands, and its number.

    And whether the numbers rise.
    """
    from array import array  # here: most looks are at a session, and place nothing

    found, is_in_order, last = array("Q"), True, 0
    asked: dict[str, list[int]] = {}
    for message in detail.messages:
        state = detail.inputs.of(message)
        place = _LAST if state is None else _place(detail, state)
        if state is not None and message.question_id is not None:
            # A question stands where its answer was taken: the first, if there are several.
            for index in asked.pop(message.question_id, ()):
                found[index] = place << _BITS | found[index] & _LAST
        is_in_order, last = is_in_order and message.seq >= last, message.seq
        if _is_told_elsewhere(message, detail):
            continue
        if message.mode == QUESTION_MODE and message.question_id:
            asked.setdefault(message.question_id, []).append(len(found))
        found.append(place << _BITS | min(message.seq, _LAST))
    return found, is_in_order


def _shown(detail: RunDetail) -> Iterator[Message]:
    return (message for message in detail.messages if not _is_told_elsewhere(message, detail))


def _sorted(places: array[int]) -> array[int]:
    # Mostly they are, and as many numbers of Python take several times the memory.
    if all(one <= other for one, other in zip(places, islice(places, 1, None), strict=False)):
        return places
    return type(places)("Q", sorted(places))


def _since(messages: Iterable[Message], seq: int) -> Iterator[Message]:
    from agentrun.records.inputs import Conversation  # here: as below

    return messages.since(seq) if isinstance(messages, Conversation) else iter(messages)


def _place(detail: RunDetail, state: InputState) -> int:
    if state.state != "delivered":
        return _LAST
    place = detail.inputs.place(state.message)
    return _LAST if place is None else place


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
