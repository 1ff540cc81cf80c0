"""Files that go with a prompt: kept in the session before the prompt is accepted, copied for the tools of its run."""

from __future__ import annotations

import io

from agentrun.errors import Denied
from agentrun.records.attachment import Attachment
from agentrun.store import layout
from agentrun.store.blobs import keep_blob, read_blob
from agentrun.store.removal import remove_tree
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

_UNFINISHED = layout.UNFINISHED_PREFIX + layout.ATTACHMENTS


def keep_attachment(writer: Writer, name: str, origin: str, data: bytes) -> Attachment:
    """Keeps the bytes of a file, durable when this returns: the prompt that names them comes after."""
    kept = keep_blob(writer.session.directory, layout.ATTACHMENTS, io.BytesIO(data))
    return Attachment(name, kept["sha256"], kept["bytes"], origin)


def read_attachment(session: SessionDir, attachment: Attachment) -> bytes | None:
    """The bytes of a file as they were when its prompt was accepted; None if they are damaged or gone."""
    return read_blob(session.directory, layout.ATTACHMENTS, attachment.sha256)


def path_of(run_dir: RunDir, attachment: Attachment) -> str:
    """Where the tools of a run find a file."""
    return run_dir.directory.at(f"{layout.SCRATCH}/{layout.ATTACHMENTS}/{attachment.name}")


def copy_for_tools(writer: Writer, run_dir: RunDir, attachments: list[Attachment]) -> None:
    """Puts copies of the files into the run's scratch, once: what the tools make of them there is theirs."""
    if not attachments:
        return
    try:
        scratch = run_dir.directory.ensure(layout.SCRATCH)
    except Denied:
        return  # a tool has put something else there, such as a link to a bigger disk
    if scratch.stat(layout.ATTACHMENTS) is not None:
        return
    if scratch.stat(_UNFINISHED) is not None:
        remove_tree(scratch, _UNFINISHED)
    copies = scratch.ensure(_UNFINISHED)
    for attachment in attachments:
        data = read_attachment(writer.session, attachment)
        if data is not None:
            copies.replace(attachment.name, data)
    scratch.move(_UNFINISHED, layout.ATTACHMENTS)
