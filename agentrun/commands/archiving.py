"""Packing sessions into an archive, and taking them out of one."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

from agentrun.errors import AgentrunError, StorageFailed
from agentrun.records.session import Session
from agentrun.store.archive.packing import Packer
from agentrun.store.archive.unpacking import unpack
from agentrun.store.check.conversation import look_once
from agentrun.store.sessions import SessionDir
from agentrun.store.staging import Staging
from agentrun.store.tree import Tree

# Agents whose name is what is executed: a session from elsewhere may name one.
_COMMAND_LINES = ("command:", "acp:")
# Findings of one session that are told; `check` tells all of them.
LISTED = 3


class Packed(NamedTuple):
    """What went into an archive: the ids; what could not; and sessions that were passed over, each with its error."""

    session_ids: tuple[str, ...]
    left_out: tuple[str, ...]
    refused: tuple[AgentrunError, ...] = ()


class Unpacked(NamedTuple):
    """A session that came out of an archive; `remarks` are what its user should know.

    One that `is_here_already` was in the tree, byte for byte, and was passed over.
    """

    session: Session
    messages: int
    runs: int
    remarks: tuple[str, ...]
    is_here_already: bool = False


def pack(tree: Tree, session: SessionDir, out: BinaryIO) -> Packed:
    """Packs one session. Raises SlotTaken if a run of it is not over."""
    packer = Packer(tree.account, out)
    packer.add(session)
    packer.finish()
    return Packed((session.session_id,), tuple(packer.left_out))


def pack_all(tree: Tree, out: BinaryIO) -> Packed:
    """Packs all sessions of the account into `out`, which can be sought in.

    Those with a run that is not over are passed over, and named; so is what cannot be read: it keeps no other out of a
    backup.
    """
    packer, packed, refused = Packer(tree.account, out), [], list[AgentrunError]()
    for session_id in sorted(tree.session_ids()):
        before = out.tell()
        try:
            session = tree.listed(session_id)
            if session is not None:
                packer.add(session)
                packed.append(session_id)
        except StorageFailed:
            raise  # of the archive's own disk, as likely as not
        except AgentrunError as error:
            # What went in of it already would be taken for all of it.
            out.seek(before)
            out.truncate()
            if tree.is_listed(session_id):
                refused.append(error)
    packer.finish()
    return Packed(tuple(packed), tuple(packer.left_out), tuple(refused))


def take_out(tree: Tree, source: BinaryIO, path: str, new_id: str | None) -> list[Unpacked]:
    """Takes all sessions out of an archive, all of them or none; passes over what is here. Executes nothing.

    Raises NameTaken, Denied, CorruptRecord, StorageFailed: see `store.archive.unpacking`.
    """
    with tree.staging() as staging:
        session_ids = unpack(staging, source, path, new_id)
        unpacked = [_about(staging, session_id) for session_id in session_ids]
        there = staging.publish(session_ids)
    return [each._replace(is_here_already=each.session.session_id in there) for each in unpacked]


def _about(staging: Staging, session_id: str) -> Unpacked:
    session = staging.session(session_id)
    document = session.read()
    count, agents = 0, {document.agent}
    for message in session.messages_since(1):
        count += 1
        agents.add((message.accept or {}).get("agent"))
    wrong = [staging.told(f"{found.path}: {found.said}") for found in look_once(session) if found.is_wrong]
    remarks = [f"damaged, as it was archived: {each}" for each in wrong[:LISTED]]
    if len(wrong) > LISTED:
        remarks.append(f"and {len(wrong) - LISTED} more; see: agentrun check {session_id}")
    lines = sorted(each for each in agents if isinstance(each, str) and each.startswith(_COMMAND_LINES))
    remarks += [f"{session_id} has a command line for an agent; going on with it would run {each!r}" for each in lines]
    return Unpacked(document, count, len(session.run_ids()), tuple(remarks))
