"""Numbers of messages in few bytes, and messages that are found by theirs."""

import tracemalloc
from collections.abc import Iterator

from agentrun.records.inputs import Conversation
from agentrun.records.message import Message
from agentrun.records.numbered import Marked, Numbers


def test_a_set_of_numbers_has_what_was_put_in() -> None:
    found = Numbers()
    put = [-9, -1, 5, 8, 9, 4_000, 1 << 23, (1 << 70) + 1]
    for number in put:
        found.add(number)
    assert [number for number in [-9, -5, -1, *range(5_000), *put[6:], 1 << 24] if number in found] == put


def test_it_takes_a_bit_of_each_and_no_more_for_high_ones() -> None:
    """Covers promise 16."""
    tracemalloc.start()
    try:
        found = Numbers()
        for number in (*range(10_000), (1 << 62)):
            found.add(number)
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()


def test_numbers_are_found_by_their_text() -> None:
    found = Marked()
    assert [*found.of("a")] == []
    for number in range(1_000, 0, -1):
        found.add(f"question-{number % 100}", number)
    found.add("question-7", 1 << 40)
    assert [*found.of("question-7")] == [*range(7, 1_000, 100)]
    found.add("question-7", 3)
    assert [*found.of("question-7")][:2] == [3, 7]
    assert [*found.of("question-100")] == []


def test_a_message_is_found_by_its_number_near_and_far() -> None:
    there = [Message(seq, "s", "run-1", "user", "steer", "", "") for seq in range(1, 2_000) if seq % 7]
    read = 0

    def since(seq: int) -> Iterator[Message]:
        nonlocal read
        for message in there:
            if message.seq >= seq:
                read += 1
                yield message

    conversation = Conversation(since)
    find = conversation.finder()
    for seq in (*range(2_005), 1, 1, 1_500, 700, 701, 3, 90_000, 8):
        found = find(seq)
        assert (found.seq if found else None) == (seq if 0 < seq < 2_000 and seq % 7 else None)
        assert conversation.at(seq) == found
    # Those that are asked for one after the other are read once; `at` reads one each time.
    assert read < 2 * 2_000 + 3_000


def test_a_short_conversation_is_read_once_and_a_long_one_is_not_held() -> None:
    for count, length, looks in ((3, 10, 1), (200, 10, 1), (201, 10, 4), (3, 1 << 17, 4)):
        there = [Message(seq, "s", "run-1", "user", "steer", "x" * length, "") for seq in range(1, count + 1)]
        begun: list[int] = []

        def read(since: int, there: list[Message] = there, begun: list[int] = begun) -> Iterator[Message]:
            begun.append(since)
            return (message for message in there if message.seq >= since)

        conversation = Conversation.of(read)
        assert [*conversation] == [*conversation] == there
        assert [*conversation.since(3)] == there[2:]
        assert len(begun) == looks
