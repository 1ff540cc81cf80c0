"""What a model is told of what came before: all that can be read, whatever is damaged, and never more than fits.

# covers A12; promise 2 16; case C1 C17
"""

from pathlib import Path

import pytest

from agentrun.executor import conversation
from agentrun.executor.conversation import earlier_conversation
from agentrun.records.message import Message
from agentrun.store.sessions import SessionDir
from agentrun.testing import trees


def told(session: SessionDir) -> list[Message]:
    """What the model of a run that is accepted now is told of before."""
    return list(earlier_conversation(session, trees.accept(session, "and now?").load()).messages)


@pytest.mark.slow
def test_a_block_of_nul_hides_one_message_from_the_model_and_no_more(session: SessionDir) -> None:
    for number in range(20):
        trees.completed(session, f"remark {number} " + "x" * 300)
    path = Path(session.directory.path, "messages.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 40
    lines[20] = lines[20][:30] + bytes(300) + lines[20][330:]
    path.write_bytes(b"".join(lines))
    found = told(session)
    assert [message.seq for message in found] == [seq for seq in range(1, 41) if seq != 21]
    said = [message.text.partition(" x")[0] for message in found if message.role == "user"]
    assert said == [f"remark {number}" for number in range(20) if number != 10]
    assert session.tail(1)[0].seq == 41


def test_a_very_long_message_is_told_as_its_beginning_and_its_size(
    session: SessionDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "LONGEST", 1000)
    trees.completed(session, "a" * 1000)
    trees.completed(session, "b" * 5000)
    first, _, second, _ = told(session)
    assert first.text == "a" * 1000
    assert second.text == "b" * 1000 + "\n[Message #3 has 5,000 characters; the rest is not shown]"


def test_all_that_is_told_has_a_bound_and_the_newest_comes_first(
    session: SessionDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "CHARACTERS", 2500)
    for letter in "abcd":
        trees.completed(session, letter * 1000)
    assert [message.text[0] for message in told(session) if message.role == "user"] == ["c", "d"]
