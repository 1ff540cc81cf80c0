"""What an agent is told of the files that go with a prompt."""

from __future__ import annotations

from agentrun.records.attachment import Attachment, attachments_of
from agentrun.records.message import Message
from agentrun.store.attachments import path_of, read_attachment
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

# Bytes of one file that a model is shown, and of all files of a prompt: the rest is for tools.
SHOWN = 32 * 1024
SHOWN_OF_ALL = 128 * 1024


def with_files(session: SessionDir, run_dir: RunDir, message: Message) -> Message:
    """The prompt of a run as its agent is told it: the text, then each attached file."""
    told, room = [message.text], SHOWN_OF_ALL
    for attachment in attachments_of(message):
        part = _told(session, run_dir, attachment, min(SHOWN, room))
        room = max(room - len(part), 0)
        told.append(part)
    return message._replace(text="\n\n".join(told))


def with_names(message: Message) -> Message:
    """An earlier prompt: its files are named only."""
    names = [f"[Attached then: {each.name}, {each.size} bytes]" for each in attachments_of(message)]
    return message._replace(text="\n".join([message.text, *names]))


def _told(session: SessionDir, run_dir: RunDir, attachment: Attachment, room: int) -> str:
    data = read_attachment(session, attachment)
    head = f"Attached file {attachment.name}, {attachment.size} bytes"
    if data is None:
        return f"[{head}: it cannot be read any more; say so instead of guessing what it says]"
    head += f", for tools at {path_of(run_dir, attachment)}"
    text = _text(data)
    if text is None:
        return f"[{head}; it is no text]"
    shown = text.encode("utf-8")[:room].decode("utf-8", "ignore")
    end = f"End of {attachment.name}" if shown == text else f"{attachment.name} goes on; the rest is not shown"
    return f"[{head}]\n{shown}\n[{end}]"


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
