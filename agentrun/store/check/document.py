"""Makes a session's document again where it was lost: without it nothing of the session could be read or added to.

What it says stands nowhere else, but for what the conversation and the runs tell. The rest - the title, where the
session was forked from, whether it was put away - is not invented. The damaged bytes are kept.
"""

from __future__ import annotations

from agentrun import clock, ids
from agentrun.records.codec import check_version, decode, encode_document
from agentrun.records.session import Session
from agentrun.store import layout
from agentrun.store.aside import keep_aside
from agentrun.store.sessions import SessionDir

# The name of the session that the first lines were copied from, where nobody knows it any more.
_UNKNOWN = "unknown"


def restore_document(session: SessionDir) -> None:
    """Writes `session.json` again if it is missing or no document of a session.

    One of another session, or of a newer format, is left as it is. Raises CorruptRecord if there is no conversation
    either, NewerFormat, StorageFailed.
    """
    with session.locked():
        data = session.directory.read(layout.SESSION)
        if data is not None:
            if _is_document(data, session.directory.at(layout.SESSION)):
                return
            keep_aside(session.directory, layout.damaged_name(layout.SESSION, 0), data)
        session.directory.replace(layout.SESSION, encode_document(_told(session).to_doc()))


def _is_document(data: bytes, path: str) -> bool:
    try:
        doc = decode(data)
    except ValueError:
        return False
    check_version(doc, path)
    try:
        Session.from_doc(doc)
    except ValueError:
        return False
    return True


def _told(session: SessionDir) -> Session:
    """What the conversation and the runs tell of the session."""
    first = next(session.messages_since(1), None)
    copied, agent = _copied(session)
    now = clock.timestamp()
    return Session(
        session_id=session.session_id,
        account_id=session.account,
        title="",
        agent=agent,
        archived=False,
        working_directory=None,
        remote_ids={},
        forked_from={"sessionId": _UNKNOWN, "seq": copied} if copied else None,
        created_at=first.at if first else now,
        updated_at=now,
        revision=1,
    )


def _copied(session: SessionDir) -> tuple[int, str | None]:
    """How many lines were copied from another session, and the agent that was asked for last.

    A prompt that was said elsewhere must not be executed here. Runs begin anew in a fork: so the last line that begins
    a run-1 is the first of its own, and one whose run is not there, though that of a later one is, was copied. Without
    any run all was copied.
    """
    runs = set(session.run_ids())
    if not runs:
        return session.messages.last_seq(), None
    copied = absent = 0
    agent: object = None
    for prompt in (message for message in session.messages_since(1) if message.begins_run):
        if prompt.run_id == ids.run_id(1):
            copied = prompt.seq - 1
        if prompt.run_id in runs:
            copied = max(copied, absent)
        else:
            absent = prompt.seq
        agent = (prompt.accept or {}).get("agent")
    return copied, agent if isinstance(agent, str) else None
