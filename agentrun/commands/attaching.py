"""The files that a user attaches to a prompt, read before anything is accepted."""

from __future__ import annotations

import os
import stat

from agentrun.errors import UsageError
from agentrun.named import NamedTuple
from agentrun.pieces import read_to
from agentrun.records.attachment import Attachment, is_file_name
from agentrun.store.attachments import keep_attachment
from agentrun.store.tree import Tree
from agentrun.store.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Of one prompt, all files together: they are kept twice, and copied while the session's lock is held.
MOST_BYTES = 64 * 1024 * 1024
_SHARED = "shared:"


class AttachedFile(NamedTuple):
    """A file as it was read; `origin` as in `Attachment`."""

    name: str
    origin: str
    data: bytes

    def keep(self, writer: Writer) -> Attachment:
        """Keeps it in the session, durable."""
        return keep_attachment(writer, self.name, self.origin, self.data)


def read_files(tree: Tree, words: Sequence[str]) -> tuple[AttachedFile, ...]:
    """The files that the words of `--attach` name. Raises UsageError, NotFound, Denied."""
    files: list[AttachedFile] = []
    room = MOST_BYTES
    for word in words:
        file = _read(tree, word, room)
        room -= len(file.data)
        if any(each.name == file.name for each in files):
            raise UsageError(f"two attached files are called {file.name!r}; give one of them another name")
        files.append(file)
    return tuple(files)


def _read(tree: Tree, word: str, room: int) -> AttachedFile:
    is_shared = word.startswith(_SHARED)
    name = word.removeprefix(_SHARED) if is_shared else os.path.basename(word)
    if not is_file_name(name):
        raise UsageError(f"{word!r} cannot be attached: its name must be one plain, visible name")
    data = tree.read_shared(name, room) if is_shared else _read_file(word, room)
    return AttachedFile(name, word if is_shared else "file", data)


def _read_file(path: str, room: int) -> bytes:
    try:
        # Looked at before it is opened: a FIFO would wait for somebody to write.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{path!r} is no regular file")
        with open(path, "rb") as file:
            data = read_to(room, file.read)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from error
    if data is None:
        raise UsageError(
            f"{path!r} is too large: the files of one prompt may have {MOST_BYTES} bytes together",
            hint="leave it where it is, and name it in the text for a tool that reads it",
        )
    return data
