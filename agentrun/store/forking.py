"""A new session that begins with what was said in another one.

The lines are copied as they are, with the new session's id: whose run a line belongs to stays, and `forkedFrom` says
which session's. They are history there - nothing in them waits to be delivered, and runs begin again at run-1.
"""

from __future__ import annotations

from agentrun import clock
from agentrun.errors import CorruptRecord
from agentrun.records.codec import Doc, encode_line
from agentrun.records.message import Message
from agentrun.records.session import Session
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def settled_seq(writer: Writer) -> int:
    """The last message before the first one of a run that is not over; the last of all if none is."""
    begun = [run_dir.current(writer).message_seq for run_dir in writer.open_runs()]
    return min(begun, default=writer.session.messages.next_seq()) - 1


def forked(source: Session, session_id: str, seq: int) -> Session:
    """The document of a fork. It has no remote ids: a conversation elsewhere goes on for one of the two only."""
    origin: Doc = {"sessionId": source.session_id, "seq": seq}
    if source.forked_from:
        # So that of lines copied twice, too, it can be said whose they are.
        origin["forkedFrom"] = source.forked_from
    now = clock.timestamp()
    return Session(
        session_id, source.account_id, source.title, source.agent, False, source.working_directory, {}, origin,
        created_at=now, updated_at=now, revision=1,
    )  # fmt: skip


def copied_lines(source: SessionDir, session_id: str, seq: int) -> Iterator[bytes]:
    """The first `seq` lines of `source` as `session_id` has them. Raises CorruptRecord at one that cannot be read."""

    def read(doc: Doc) -> tuple[Message, Doc]:
        return source.message(doc), doc

    expected = 1
    for _, (message, doc) in source.messages.forward(read):
        if message.seq > seq:
            break
        if message.seq != expected:
            raise _cannot_be_read(source, expected)
        yield encode_line(doc | {"sessionId": session_id})
        expected += 1
    if expected <= seq:
        raise _cannot_be_read(source, expected)


def _cannot_be_read(source: SessionDir, seq: int) -> CorruptRecord:
    damage = source.messages.damage
    offset = damage[0].offset if damage else 0
    return CorruptRecord(
        f"{source.messages.path}: message {seq} at byte {offset} cannot be read, so it cannot be copied",
        path=source.messages.path,
        offset=offset,
        hint=f"take what stands before it: agentrun fork {source.session_id} --at {seq - 1}" if seq > 1 else None,
    )
