"""Changes `session.json`: read and written in one hold of the session's lock, so that no window overwrites another's.

`revision` counts the changes; a caller that shows a session to somebody and writes later what that person chose says
which revision it had shown.
"""

from __future__ import annotations

from agentrun import clock
from agentrun.errors import SeqDiffers
from agentrun.records.codec import encode_document
from agentrun.records.session import Session
from agentrun.store import layout
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def change_session(
    writer: Writer, change: Callable[[Session], Session], *, expect_revision: int | None = None
) -> Session:
    """Replaces the document by what `change` makes of it as it is now; durable when this returns.

    Nothing is written if nothing changes. Raises SeqDiffers unless the revision is `expect_revision` (None: whatever
    it is), CorruptRecord if there is no document to change.
    """
    session = writer.session.read()
    if expect_revision not in (None, session.revision):
        name = session.session_id
        raise SeqDiffers(
            f"{name} is at revision {session.revision}, not {expect_revision}: somebody else has changed it",
            hint=f"see what it is now: agentrun show {name} --json",
            session_id=name,
        )
    changed = change(session)
    if changed == session:
        # What is told may have been written by somebody who did not live to sync it.
        writer.session.directory.sync()
        return session
    changed = changed._replace(updated_at=clock.timestamp(), revision=session.revision + 1)
    # Not noted as activity: what is put away or renamed must not become `@last` by that.
    writer.session.directory.replace(layout.SESSION, encode_document(changed.to_doc()))
    return changed


def keep_remote_id(writer: Writer, name: str, value: str) -> Session:
    """Stores under which id the outside service `name` knows this conversation, in place of what it was before."""
    return change_session(writer, lambda session: session._replace(remote_ids=session.remote_ids | {name: value}))
