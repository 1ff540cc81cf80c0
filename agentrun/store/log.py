"""An append-only file of JSON lines: appended under the session's lock, read by anyone without one.

A record is complete with its newline. What stands behind the last newline was never acknowledged to anyone: readers
pass over it, and the next append sets it aside, raw, before it writes. A damaged line hides no other: it is named with
its offset and the reading goes on. Appending and reading from the end cost the same whatever the length.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms at every start
import os
from itertools import count

from agentrun.errors import CorruptRecord, StorageFailed
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, decode, encode_line
from agentrun.store.disk import Directory, data_sync, speaking_of, sync_for_reading, translated, write_all
from agentrun.store.layout import torn_name
from agentrun.store.numbers import (
    check_line,
    is_overwritten,
    last_number,
    line_at,
    line_start,
    lines_backward,
    number_at,
    seq_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    T = TypeVar("T")
    Decode = Callable[[bytes], Doc]


_CHUNK = 1 << 16

# Logs of which a sync failed in this process, by device and inode, and how: no handle of theirs appends any more.
_given_up: dict[tuple[int, int], str] = {}

# Held while a handle takes its file: of two threads that open it at once, one keeps what it has opened.
_keeping = _thread.allocate_lock()


def _keep_anew() -> None:
    """In a forked child: the thread that held the lock, if one did, is the parent's."""
    global _keeping
    _keeping = _thread.allocate_lock()


os.register_at_fork(after_in_child=_keep_anew)


class Damage(NamedTuple):
    """A line of `path` that is no record: where it stands, how long it is and what is wrong with it."""

    path: str
    offset: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: damaged record at byte {self.offset} ({self.length} bytes): {self.reason}"


class Torn(NamedTuple):
    """What an unfinished append left behind the last record of a log: acknowledged to nobody."""

    offset: int
    length: int


class Log:
    """One log. `read` makes a record of a decoded line and raises ValueError if it is none.

    `damage` lists the damaged lines that this handle came across. A log that `must_exist` was made with its directory:
    if it is not there it was lost, which is damage and no empty log.
    """

    def __init__(self, directory: Directory, name: str, *, must_exist: bool = False) -> None:
        self.directory = directory
        self.name = name
        self._must_exist = must_exist
        self.path = directory.at(name)
        self._damage: dict[int, Damage] = {}
        self._fd: int | None = None
        self._writable = False
        # The size and last number after this handle's own last look; trusted only while the size is still that.
        self._known_size, self._last_seq = -1, 0
        # The last number known to have been given out, and how many more may have been if its record is lost.
        self._given_out = self._unsure = 0

    @property
    def damage(self) -> list[Damage]:
        """The damaged lines that were passed over, in the order in which they were met."""
        return list(self._damage.values())

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._writable = None, False

    def __del__(self) -> None:
        self.close()

    # --- writing, under the session's lock

    def append(self, make: Callable[[int], Doc]) -> Doc:
        """Appends the record that `make` returns for the next number, and returns it; `sync` makes it last.

        Raises StorageFailed: then the record is not there, or (after a failed sync) nobody can know.
        """
        seq = self.next_seq()
        doc = make(seq)
        self.append_line(encode_line(doc), seq)
        return doc

    def append_line(self, line: bytes, seq: int) -> None:
        """Appends `line`, a record with the number `seq`, which `next_seq` told in this hold. Raises as `append`."""
        fd = self._open_for_append()
        try:
            write_all(fd, line)
        except OSError as error:
            size, self._known_size = self._known_size, -1
            # A fragment would glue itself to the next record; it was acknowledged to nobody.
            with speaking_of(self.path):
                os.ftruncate(fd, size)
            raise translated(error, self.path) from error
        self._known_size += len(line)
        self._last_seq = seq

    def sync(self) -> None:
        """Makes everything appended so far last through a power cut."""
        self._sync(self._open_for_append())

    def _sync(self, fd: int) -> None:
        try:
            data_sync(fd)
        except OSError as error:
            # The kernel may have dropped the pages and will report success next time; only a new process, which
            # reads what is really there, may go on.
            words = f"{translated(error, self.path)}: whether the last record survived is unknown"
            _given_up[_identity(fd)] = words
            raise StorageFailed(words) from error

    def next_seq(self, size: int = -1) -> int:
        """The number that the next record will have; `size` is the length, of one who has just looked in this hold."""
        if size < 0 or size != self._known_size:
            self._catch_up(self._open_for_append())
        return self._seq_behind()

    def go_on_above(self, seq: int, unsure: int = 0) -> None:
        """Gives out no number up to `seq`, which a record had; if that was lost, nor the `unsure` numbers behind it."""
        self._given_out = max(self._given_out, seq)
        self._unsure = max(self._unsure, unsure)

    def last_seq(self) -> int:
        """The number of the last complete line, whether it can be read or not; 0 without any."""
        fd = self._open_for_reading()
        return 0 if fd is None else last_number(fd, os.fstat(fd).st_size)

    @property
    def end(self) -> int:
        """The length in bytes as this handle has just left it, by `append` or `next_seq`, in the same hold."""
        return self._known_size

    def size(self) -> int:
        """The length in bytes now."""
        fd = self._fd if self._fd is not None else self._open_for_reading()
        # A third of what fstat(2) takes, and nothing here reads from where the file stands.
        return 0 if fd is None else os.lseek(fd, 0, os.SEEK_END)

    # --- reading, without a lock

    def forward(self, read: Callable[[Doc], T], start: int = 0) -> Iterator[tuple[int, T]]:
        """Every record from byte `start` on, oldest first, each with the offset behind it."""
        for offset, line in self._lines(start):
            if isinstance(line, Torn):
                return
            try:
                record = read(decode(line))
            except ValueError as error:
                self._damage[offset] = Damage(self.path, offset, len(line), str(error))
            else:
                yield offset + len(line) + 1, record

    def entries(self, read: Callable[[Doc], T], start: int = 0) -> Iterator[tuple[int, T | Damage | Torn]]:
        """As `forward`, with everything that is no record in its place."""
        for offset, line in self._lines(start):
            if isinstance(line, Torn):
                yield offset + line.length, line
            else:
                yield offset + len(line) + 1, self._decoded(read, offset, line)

    def _lines(self, start: int) -> Iterator[tuple[int, bytes | Torn]]:
        """Every line from byte `start` on, without its newline, each with its offset; last what is torn."""
        fd = self._open_for_reading()
        if fd is None:
            return
        rest, position, length = b"", start, _CHUNK // 4
        while chunk := os.pread(fd, length + len(rest), position + len(rest)):
            length = _CHUNK
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield position, line
                position += len(line) + 1
            check_line(fd, len(rest), position)
        if rest:
            yield position, rest if is_overwritten(rest) else Torn(position, len(rest))

    def bytes_at(self, offset: int, length: int) -> bytes:
        """The raw bytes of a line, without its newline."""
        fd = self._open_for_reading()
        return b"" if fd is None else os.pread(fd, length, offset)

    def lasting(self, read: Callable[[Doc], T], start: int = 0) -> Iterator[tuple[int, T]]:
        """As `forward`, but only what lasts through a power cut: for what is told to somebody."""
        end = self.size()
        if start >= end:
            return  # who follows asks of each log, and mostly one of them has grown
        self.sync_for_reading()
        for offset, record in self.forward(read, start):
            if offset > end:
                return
            yield offset, record

    def backward(self, read: Callable[[Doc], T], decoded: Decode = decode) -> Iterator[T]:
        """Every record, newest first; `decoded` makes the document of a line, for `read`."""
        fd = self._open_for_reading()
        if fd is None:
            return
        for offset, line in lines_backward(fd, os.lseek(fd, 0, os.SEEK_END)):
            record = self._decoded(read, offset, line, decoded)
            if isinstance(record, Damage):
                self._damage[offset] = record
            else:
                yield record

    def offset_of(self, seq: int) -> int:
        """Where to read `forward` from to get every record numbered `seq` or more; found without an index.

        Lines are of like lengths more often than not, so it looks where `seq` would be then, and by halving where that
        does not lead there.
        """
        fd = self._open_for_reading()
        if fd is None:
            return 0
        low, high = 0, os.fstat(fd).st_size
        below, above = 1, last_number(fd, high) + 1
        for step in count():
            if low >= high:
                break
            share = min(max((seq - below) / max(above - below, 1), 0.0), 1.0) if step % 3 < 2 else 0.5
            guess = low + int((high - low - 1) * share)
            # No line begins between there and the guess: a very long one is passed over in one step.
            middle = max(low, line_start(fd, guess))
            start, found = self._first_numbered(fd, middle, high)
            if found is None or found >= seq:
                high, above = middle, found or above
            else:
                low, below = start + 1, found
        return line_start(fd, low)

    def sync_for_reading(self) -> None:
        """Makes what can be read now last, before it is told to anyone; once for as long as nothing is appended."""
        fd = self._open_for_reading()
        if fd is None:
            return
        found = os.fstat(fd)
        state = found.st_ino, found.st_size, found.st_mtime_ns
        if state != self._synced:
            sync_for_reading(fd, self.path)
            self._synced = state

    # --- below

    def _seq_behind(self) -> int:
        return self._last_seq + 1 if self._last_seq >= self._given_out else self._given_out + self._unsure + 1

    def _open_for_append(self) -> int:
        if self._fd is None or not self._writable:
            flags = os.O_RDWR | os.O_APPEND | (0 if self._must_exist else os.O_CREAT)
            self._keep(self._found(self.directory.open_file(self.name, flags)), writable=True)
        assert self._fd is not None  # O_CREAT, or it was found
        if _given_up:
            _check_kept(self._fd)
        return self._fd

    def _open_for_reading(self) -> int | None:
        if self._fd is None:
            self._keep(self._found(self.directory.open_file(self.name)), writable=False)
        return self._fd

    def _keep(self, fd: int | None, *, writable: bool) -> None:
        """Takes what was opened as the file of this handle, unless another thread that reads was quicker.

        Such a thread may be in the middle of reading, so the file that may be written gets the number of the one that
        may only be read: a number that was closed could be that of any other file a moment later.
        """
        if fd is None:
            return
        with _keeping:
            if self._fd is None:
                self._fd, self._writable = fd, writable
                return
            if writable:
                os.dup2(fd, self._fd, inheritable=False)
                self._writable = True
        os.close(fd)

    def _found(self, fd: int | None) -> int | None:
        if fd is None and self._must_exist:
            raise CorruptRecord(f"{self.path} is missing", path=self.path, offset=0)
        return fd

    # What the file was when this handle last synced it to read.
    _synced: tuple[int, int, int] | None = None

    def _catch_up(self, fd: int) -> int:
        """Looks at what others appended; returns the size, after a torn tail was set aside."""
        size = os.lseek(fd, 0, os.SEEK_END)
        if size != self._known_size and not self._goes_on(fd, size):
            with speaking_of(self.path):
                size = self._set_torn_tail_aside(fd, size)
                self._last_seq = last_number(fd, size)
                self._known_size = size
        return size

    def _goes_on(self, fd: int, size: int) -> bool:
        """Takes up what others appended behind what is known, if those are as many whole lines as the last number says.

        Else nothing is taken up: the end of the log has to be looked at closely.
        """
        length = size - self._known_size
        if self._known_size < 0 or not 0 < length <= _CHUNK:
            return False
        lines = os.pread(fd, length, self._known_size)
        # A NUL byte may stand where a newline was, between two records.
        if lines[-1:] != b"\n" or b"\0" in lines:
            return False
        last = self._last_seq + lines.count(b"\n")
        *before, end, _ = lines.rsplit(b"\n", 3)
        if number_at(end) != last or (before and number_at(before[-1]) >= last):
            return False
        self._known_size, self._last_seq = size, last
        return True

    def _set_torn_tail_aside(self, fd: int, size: int) -> int:
        end = line_start(fd, size)
        if end == size:
            return size
        torn = os.pread(fd, size - end, end)
        if is_overwritten(torn):
            # Whole records, which were acknowledged: a damaged line, which keeps its place.
            write_all(fd, b"\n")
            self._sync(fd)
            return size + 1
        from agentrun.store.aside import keep_aside  # here: hardly any log is torn

        keep_aside(self.directory, torn_name(self.name, end), torn)
        os.ftruncate(fd, end)
        self._sync(fd)
        return end

    def _first_numbered(self, fd: int, offset: int, end: int) -> tuple[int, int | None]:
        """The first line with a number that begins between `offset` and `end`: its start and number."""
        start = line_start(fd, offset)
        if start < offset:
            start += len(line_at(fd, start)) + 1
        while start < end:
            line = line_at(fd, start)
            seq = seq_of(line)
            if seq is not None:
                return start, seq
            start += len(line) + 1
        return start, None

    def _decoded(self, read: Callable[[Doc], T], offset: int, line: bytes, decoded: Decode = decode) -> T | Damage:
        try:
            return read(decoded(line))
        except ValueError as error:
            return Damage(self.path, offset, len(line), str(error))


def _check_kept(fd: int) -> None:
    """Raises StorageFailed if this process has given the log up."""
    given_up = _given_up.get(_identity(fd))
    if given_up is not None:
        # In the same words: it is what came of the failure that ends up as the reason of this process's end.
        raise StorageFailed(f"{given_up}, so this process appends no more")


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
