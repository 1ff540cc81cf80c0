"""Full text search over what was said: the messages of sessions, and their reports, which are messages as well."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentrun.errors import AgentrunError
from agentrun.records.message import REPORT, Message
from agentrun.records.views import Hit
from agentrun.store.log import Damage
from agentrun.store.needle import Needle, needle
from agentrun.store.searching import records_with
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree

# Characters that are given before and behind what was found.
AROUND = 200


def search(tree: Tree, text: str, session: SessionDir | None = None) -> Iterator[Hit | Damage | AgentrunError]:
    """Where `text` occurs, capitals or not: in `session`, or in all of the account, the one that changed last first.

    Within a session in the order of the conversation, each message once. What cannot be read comes in its place, and
    the search goes on. Raises UsageError for a text that cannot be searched for.
    """
    wanted = needle(text)
    return _in_session(session, wanted) if session is not None else _in_all(tree, wanted)


def _in_all(tree: Tree, wanted: Needle) -> Iterator[Hit | Damage | AgentrunError]:
    listed = tree.lister()
    for session_id in tree.recent_ids():
        try:
            session = listed(session_id)
            if session is not None:
                yield from _in_session(session, wanted)
        except AgentrunError as error:
            # (What is removed while it is read is not damaged.)
            if tree.is_listed(session_id):
                yield error


def _in_session(session: SessionDir, wanted: Needle) -> Iterator[Hit | Damage]:
    document = session.read()
    reported = set()
    for entry in records_with(session.messages, session.message, wanted):
        if isinstance(entry, Damage):
            yield entry
            continue
        place = wanted.in_text.search(entry.text)
        if place is None:
            continue
        # A copied line speaks of a run of another session, whatever that is called.
        named = entry._replace(run_id=document.run_of(entry))
        if named.mode == REPORT:
            reported.add(named.run_id)
        yield _hit(named, named.seq, place)
    yield from _in_new_report(session, wanted, reported)


def _in_new_report(session: SessionDir, wanted: Needle, reported: set[str]) -> Iterator[Hit]:
    """In the report of a run that has just completed, unless its message was there: the slot is freed after both."""
    run_id = session.active()
    if run_id is None or run_id in reported:
        return
    run_dir = session.run(run_id)
    run = run_dir.load()
    report = run_dir.report() if run.is_over and run.report else None
    place = wanted.in_text.search(report) if report is not None else None
    if report is not None and place is not None:
        told = Message(0, session.session_id, run_id, "assistant", REPORT, report, run.terminal_at or "")
        yield _hit(told, None, place)


def _hit(message: Message, seq: int | None, place: re.Match[str]) -> Hit:
    text, (start, end) = message.text, place.span()
    return Hit(
        session_id=message.session_id,
        run_id=message.run_id,
        seq=seq,
        role=message.role,
        mode=message.mode,
        at=message.at or None,
        before=text[max(start - AROUND, 0) : start],
        text=place[0],
        after=text[end : end + AROUND],
        is_cut=(start > AROUND, end + AROUND < len(text)),
    )
