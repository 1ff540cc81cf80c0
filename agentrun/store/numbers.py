"""Which numbers the lines of a log have, or had before they were damaged or lost: none of them is given out again."""

from __future__ import annotations

import os
from itertools import chain

from agentrun.records.codec import decode_in_brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.records.run import Run

_CHUNK = 1 << 16
# Most looks at the end of a log, or at a place in its middle, are over with the next few lines.
_FIRST_CHUNK = 1 << 12
# Ids are short, so the number of a record stands within so many bytes of its line's beginning.
_HEAD = 256


def check_line(fd: int, length: int, offset: int) -> None:
    """Raises CorruptRecord if the line that begins at `offset` is longer than any record; `length` is known of it."""
    if length > _CHUNK:
        from agentrun.store import lengths  # hardly any line is so long

        lengths.check_line(fd, length, offset)


def seq_of(line: bytes) -> int | None:
    """The number of a line; None if it has none that can be read."""
    try:
        seq = decode_in_brief(line).get("seq")
    except ValueError:
        return None
    return seq if type(seq) is int and seq > 0 else None


def last_begun(damaged: bytes) -> int:
    """The highest number of the records that begin in a damaged line, at its start or behind a NUL byte; 0 for none."""
    import re  # here: hardly any log is damaged

    heads = re.findall(rb'(?:^|\0)\{(?:"sessionId":"[^"]*","runId":"[^"]*",)?"seq":([1-9][0-9]{0,14}),', damaged)
    return max(map(int, heads), default=0)


def is_overwritten(tail: bytes) -> bool:
    """Whether these are whole records, each with a NUL byte where its newline was: no append leaves that behind."""
    begin = 0
    # One by one: of a file with a hole in it, all bytes may be NUL.
    while (end := tail.find(b"\0", begin)) >= 0:
        if seq_of(tail[begin:end]) is None:
            return False
        begin = end + 1
    return begin == len(tail) > 0


def newest_message_of(run: Run) -> int:
    """The highest number of a message that `run` tells of: each was durable before an event named it."""
    return max(chain((run.message_seq,), run.delivered_inputs, run.returned_inputs))


def last_number(fd: int, size: int) -> int:
    """The highest number that a complete line before `size` has, whether it can be read or not; 0 without any.

    That is the last one's, unless somebody brought the lines out of order: then all of them are looked at.
    """
    # A damaged line had a number too; it is never used again. Nor are those of lines that became one.
    behind = last = 0
    for offset, line in lines_backward(fd, size):
        seq = seq_of(line)
        if seq is not None:
            last = max(seq + behind, last)
            return last if _number_before(fd, offset) < seq else max(last, _highest(fd, offset))
        last = max(last_begun(line) + behind, last)
        behind += 1
    return max(behind, last)


def _number_before(fd: int, offset: int) -> int:
    """The number with which the line before `offset` begins; 0 if there is none, or it begins far up."""
    for length in (_FIRST_CHUNK, _CHUNK):
        begin = max(offset - length, 0)
        data = os.pread(fd, offset - begin, begin)
        # Its own newline is the last byte.
        newline = data.rfind(b"\n", 0, -1)
        if newline >= 0 or begin == 0:
            return number_at(data[newline + 1 : -1])
    return 0


def number_at(line: bytes) -> int:
    """The number with which a line begins; 0 if it does not begin with one."""
    # Every writer passes here: neither the record is decoded for it, nor what searches by patterns loaded.
    digits, comma, _ = line[:_HEAD].partition(b'"seq":')[2].partition(b",")
    return int(digits) if comma and digits.isdigit() else 0


def _highest(fd: int, end: int) -> int:
    """The highest number with which a line before `end` begins."""
    return max((last_begun(line) for _, line in lines_backward(fd, end)), default=0)


def lines_backward(fd: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Complete lines before `end`, newest first, each with its offset; a torn tail is passed over."""
    position, rest = end, b""
    complete = False
    chunk = _FIRST_CHUNK
    while position > 0:
        # A line longer than what was read so far: read twice as much, so that long lines cost no more than once.
        length = min(position, max(chunk, len(rest)))
        chunk = min(chunk * 2, _CHUNK)
        position -= length
        data = os.pread(fd, length, position) + rest
        offset = position + len(data) + 1
        rest, *lines = data.split(b"\n")
        del data  # the lines are held as well, for as long as they are read
        check_line(fd, len(rest), position)
        for line in reversed(lines):
            offset -= len(line) + 1
            if complete:
                yield offset, line
            complete = True
    if complete:
        yield 0, rest


def line_start(fd: int, offset: int) -> int:
    """The start of the line in which `offset` lies: just behind the newline before it."""
    position = offset
    chunk = _FIRST_CHUNK
    while position > 0:
        length = min(position, chunk)
        chunk = min(chunk * 2, _CHUNK)
        found = os.pread(fd, length, position - length).rfind(b"\n")
        if found >= 0:
            return position - length + found + 1
        position -= length
        check_line(fd, offset - position, position)
    return 0


def line_at(fd: int, start: int) -> bytes:
    """The line that begins at `start`, without its newline."""
    length = 1 << 12
    while True:
        data = os.pread(fd, length, start)
        found = data.find(b"\n")
        if found >= 0:
            return data[:found]
        if len(data) < length:
            return data
        check_line(fd, length, start)
        length *= 2
