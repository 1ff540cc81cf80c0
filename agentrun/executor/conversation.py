"""What came before a run, as far as its agent may choose from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from agentrun.agent.protocols import Conversation
from agentrun.executor.attachments import with_names
from agentrun.records.message import Message
from agentrun.records.run import Run
from agentrun.records.session import Session
from agentrun.store.sessions import SessionDir
from agentrun.store.summaries import read_summary

# The context layer chooses from these; what is older is for its summary.
MESSAGES = 200
# Characters of all of these, and of one: no model takes more, and one damaged or foreign line may have any length.
CHARACTERS = 1 << 23
LONGEST = 1 << 20


def earlier_conversation(session: SessionDir, run: Run) -> Conversation:
    """The summary, the messages after it and before the prompt of `run`, and the reports that it cites."""
    summary = read_summary(session)
    covered = summary.message_seq if summary else 0
    document = session.read()
    newer = takewhile(lambda message: message.seq > covered, session.messages_backward())
    earlier = (_told(document, message) for message in newer if message.seq < run.message_seq)
    reports = {run_id: session.run(run_id).report() or "" for run_id in run.references}
    return Conversation(
        messages=list(_within(CHARACTERS, islice(earlier, MESSAGES)))[::-1],
        reports=reports,
        summary=summary.text if summary else None,
        covered_seq=covered,
        covered_events=(summary.event_seq or 0) if summary and summary.run_id == run.run_id else 0,
    )


def _within(room: int, messages: Iterator[Message]) -> Iterator[Message]:
    for message in messages:
        room -= len(message.text)
        if room < 0:
            return
        yield message


def messages_before(session: SessionDir, after: int, end: int) -> Iterator[Message]:
    """The session's messages with numbers above `after` and below `end`, oldest first."""
    document = session.read()
    for message in session.messages_since(after + 1):
        if message.seq >= end:
            return
        yield _told(document, message)


def _told(document: Session, message: Message) -> Message:
    """An earlier message as the model is told it: with the names of its files, and of copied lines whose run it was.

    Of a very long one the beginning, and how long it is.
    """
    text = message.text
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[Message #{message.seq} has {len(text):,} characters; the rest is not shown]"
    return with_names(message._replace(text=text))._replace(run_id=document.run_of(message))
