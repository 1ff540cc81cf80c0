"""What a tool says, kept within bounds: the first of stdout, the last of stderr, lines one by one.

None of them refuses a byte, so a tool is never blocked or stopped for saying too much.
"""

import tempfile
from collections import deque
from io import BytesIO
from typing import BinaryIO

STDERR_TAIL = 64 * 1024
"""Bytes of stderr that are kept: the end of it says why a tool failed."""

MEMORY_BYTES = 1024 * 1024
"""Bytes of stdout held in memory before they move to a temporary file without a name."""

LINE_BYTES = 64 * 1024
"""A longer line is dropped: it is not an id, and it must not fill the memory."""


class Spool:
    """The first `limit` bytes, in memory and beyond `MEMORY_BYTES` on disk; the rest is counted."""

    def __init__(self, limit: int) -> None:
        self.kept = self.total = 0
        self._limit = limit
        self._file: BinaryIO = BytesIO()

    def write(self, chunk: bytes) -> None:
        self.total += len(chunk)
        chunk = chunk[: self._limit - self.kept]
        try:
            if isinstance(self._file, BytesIO) and self.kept + len(chunk) > MEMORY_BYTES:
                self._file = _moved_to_disk(self._file)
            written = self._file.write(chunk)
        except OSError:  # no room: the work is not stopped for its output, which then counts as cut
            written = 0
        self.kept += written
        if written < len(chunk):
            self._limit = self.kept

    def opened(self) -> BinaryIO:
        """The file, at its start."""
        self._file.seek(0)
        return self._file


def _moved_to_disk(memory: BytesIO) -> BinaryIO:
    # Unbuffered: a full disk is then noticed at the write that it fails.
    disk: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the caller of `opened` closes it
    try:
        if disk.write(memory.getvalue()) < memory.tell():
            raise OSError("no room for output")
    except OSError:
        disk.close()
        raise
    return disk


class Tail:
    """The last `STDERR_TAIL` bytes; the rest is counted."""

    def __init__(self) -> None:
        self.total = 0
        self._kept = bytearray()

    def write(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._kept += chunk
        del self._kept[:-STDERR_TAIL]

    def content(self) -> bytes:
        return bytes(self._kept)


class Lines:
    """Lines without their newline, which alone ends one. Those that have content wait in `complete`.

    `dropped` counts those that were longer than `limit` bytes, which may be changed as lines come.
    """

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self.complete: deque[bytes] = deque()
        self.dropped = 0
        self.limit = limit
        self._rest = bytearray()
        self._too_long = False

    def write(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._extend(part)
            self.end()
        self._extend(rest)

    def end(self) -> None:
        """Ends the line at hand, also without a newline when nothing more will come."""
        if self._rest and not self._too_long:
            self.complete.append(bytes(self._rest))
        self.dropped += self._too_long
        self._rest, self._too_long = bytearray(), False

    def _extend(self, part: bytes) -> None:
        self._too_long = self._too_long or len(self._rest) + len(part) > self.limit
        if self._too_long:
            self._rest.clear()
        else:
            self._rest += part
