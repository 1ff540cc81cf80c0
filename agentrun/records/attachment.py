"""A file that goes with a prompt: its name, and the bytes it had when the prompt was accepted."""

from __future__ import annotations

from agentrun.ids import is_sha256
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.message import Message


class Attachment(NamedTuple):
    """`origin` is `file`, or `shared:NAME` for one from the account's shared directory; `size` is in bytes."""

    name: str
    sha256: str
    size: int
    origin: str

    def to_doc(self) -> Doc:
        """The fields of one entry of `attachments`."""
        return {"name": self.name, "sha256": self.sha256, "bytes": self.size, "from": self.origin}

    @classmethod
    def from_doc(cls, doc: Doc) -> Attachment:
        """The attachment in an entry. Raises ValueError if it is none: a stored field is no path."""
        name, sha256, size = doc.get("name"), doc.get("sha256"), doc.get("bytes")
        if not (isinstance(name, str) and is_file_name(name) and isinstance(sha256, str) and is_sha256(sha256)):
            raise ValueError("no attachment: name or sha256 is missing or not allowed")
        return cls(name, sha256, size if type(size) is int else 0, str(doc.get("from") or ""))


def attachments_of(message: Message) -> list[Attachment]:
    """What was attached to a prompt; entries that are none are passed over."""
    found = []
    for each in (message.accept or {}).get("attachments") or ():
        try:
            found.append(Attachment.from_doc(each))
        except (ValueError, AttributeError):
            continue
    return found


def is_file_name(name: str) -> bool:
    """Whether `name` may become a file: one path component, visible, at most 255 bytes (NAME_MAX)."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return False
    return 0 < size <= 255 and not name.startswith(".") and "/" not in name and name.isprintable()
