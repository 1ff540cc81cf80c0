"""Reads a conversation with agentrun: `ROOT ACCOUNT SESSION COUNT`."""

import sys

from serving import seconds_of, serve

from agentrun.store.tree import Tree

root, account, session_id, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
session = Tree(root, account).session(session_id)


def last(_: int) -> None:
    assert len(session.tail(20)) == 20


def page(number: int) -> None:
    seq = count // 2 + number
    messages = session.messages_since(seq)
    page = [message for message, _ in zip(messages, range(50), strict=False)]
    assert [message.seq for message in page] == [*range(seq, seq + 50)]


def load(_: int) -> None:
    assert sum(1 for _ in session.messages_since(1)) == count


serve(
    last=lambda times: seconds_of(last, times),
    page=lambda times: seconds_of(page, times),
    load=lambda times: seconds_of(load, times),
)
