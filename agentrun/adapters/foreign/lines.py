"""Files of JSON lines that other programs wrote: nothing in them is believed, and no line of them ends the reading."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO

from agentrun.records.codec import Doc, decode
from agentrun.records.fields import is_count

# Bytes of a line; a longer one is passed over. Pictures stand in such lines, and no conversation needs more.
LONGEST = 64 << 20

UNREADABLE = "unreadable line"
TOO_LONG = "line that is too long"
TORN = "unfinished last line"


def lines_of(source: BinaryIO) -> Iterator[Doc | str]:
    """The objects of the file, line by line; in place of a line that is none, a word for what it is."""
    mark = codecs.BOM_UTF8  # editors begin a file with one
    while line := source.readline(LONGEST):
        line, mark = line.removeprefix(mark), b""
        if len(line) >= LONGEST and not line.endswith(b"\n"):
            while (rest := source.readline(LONGEST)) and not rest.endswith(b"\n"):
                pass
            yield TOO_LONG
            continue
        if not line.strip():
            continue
        try:
            yield decode(line)
        except ValueError:
            yield UNREADABLE if line.endswith(b"\n") else TORN


def text_of(value: object) -> str | None:
    """`value` if it is a text."""
    return value if isinstance(value, str) else None


def doc_of(value: object) -> Doc:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def docs_of(value: object) -> list[Doc]:
    """The objects in `value`, if it is a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def number_of(value: object) -> int:
    """`value` if it is a count."""
    return value if is_count(value) and value >= 0 else 0


def time_of(value: object) -> str | None:
    """A time as agentrun stores it, of one that another program wrote; None if it is none."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is None:
            return None
        whole = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return whole.strftime("%Y-%m-%dT%H:%M:%S") + f".{whole.microsecond // 1000:03d}Z" if whole.year >= 1000 else None


def beginning(text: str) -> str:
    """The first line of a text, short enough for a title."""
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"
