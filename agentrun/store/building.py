"""Puts a session into the tree, whole or not at all: made under a name that no reader looks at, then given its own."""

from __future__ import annotations

import os

from agentrun.errors import NameTaken, StorageFailed
from agentrun.records.codec import encode_document
from agentrun.records.session import Session
from agentrun.store import layout
from agentrun.store.disk import Directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def build_session(sessions: Directory, session: Session, lines: Iterable[bytes] = ()) -> None:
    """Makes `session` with the conversation `lines`, durable. Raises NameTaken, StorageFailed, what `lines` raises."""
    unfinished = _hidden_name(sessions, session.session_id)
    try:
        _fill(sessions.open(unfinished), session, lines)
        moved = sessions.move(unfinished, session.session_id)
    except BaseException:
        from agentrun.store.removal import remove_tree

        # What did not get in whole is of no use to anyone, and a full disk wants its room back.
        remove_tree(sessions, unfinished)
        raise
    if not moved:
        from agentrun.store.removal import remove_tree

        remove_tree(sessions, unfinished)
        raise name_taken(session.session_id)
    sessions.sync()


def name_taken(session_id: str, hint: str | None = None) -> NameTaken:
    """The error for a session id that is in use."""
    return NameTaken(
        f"there is a session {session_id} already",
        hint=hint or f"go on with it: agentrun send {session_id} TEXT",
        session_id=session_id,
    )


def _hidden_name(sessions: Directory, session_id: str) -> str:
    name = layout.UNFINISHED_PREFIX + session_id
    if sessions.make(name):
        return name
    # Left by a crash, or another process is at it; either way this name is not free for us to finish.
    name += f"-{os.getpid()}"
    if not sessions.make(name):
        raise StorageFailed(f"{sessions.at(name)} is in the way; remove it if no agentrun is running")
    return name


def _fill(directory: Directory, session: Session, lines: Iterable[bytes]) -> None:
    for name in (layout.RUNS, layout.KEYS):
        directory.make(name)
    # No reader looks here, so that there is nothing to be put in the place of: one sync makes all names last.
    directory.create(layout.SESSION, [encode_document(session.to_doc())])
    directory.create(layout.MESSAGES, lines)
    directory.sync()
