"""JSON as it stands in the tree: one line per record in logs, indented documents, always valid UTF-8.

The standard library's parser is used, because loading it is what every quick command can afford.
"""

from __future__ import annotations

from agentrun.errors import NewerFormat, UsageError
from agentrun.records import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# The name of a type in quotes, as in the records: nothing at run time needs `typing`, which is slow to load.
Doc = dict[str, "Any"]

# Rises only with a change that older programs cannot read. Unknown fields and event types need no new version.
FORMAT_VERSION = 1
# The fields that may hold very many numbers.
LISTS = ("deliveredInputs", "returnedInputs", "messageSeqs")
# Bytes of a document that is not read at once, and of a part of it that is.
_LONG = 1 << 16
# What a JSON number is for everybody who reads it (RFC 8259, section 6).
_MOST = 1 << 53


def encode_line(doc: Doc) -> bytes:
    """`doc` as one line with its newline. Raises UsageError for what JSON cannot hold (NaN, too deep)."""
    return _encode(doc, jsontext.line_of, jsontext.ascii_line_of)


def encode_document(doc: Doc) -> bytes:
    """`doc` indented, with a newline at its end, for `cat` and for diffs. Raises UsageError as `encode_line`."""
    return _encode(doc, jsontext.document_of, jsontext.ascii_document_of)


def decode(data: bytes) -> Doc:
    """The JSON object in `data`. Raises ValueError for anything else, whatever is wrong with it."""
    text = data.decode("utf-8")
    try:
        value = jsontext.value_of(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


class Seqs:
    """Numbers in the order in which they were named. Those that follow one another take no more than their ends.

    A run may have been told any number of messages; as a tuple each takes 36 bytes. Equal to a tuple of the same.
    """

    __slots__ = ("_ends",)

    def __init__(self, numbers: Iterable[int] = (), behind: tuple[int, ...] = ()) -> None:
        ends = list(behind)
        for number in numbers:
            if ends and ends[-1] == number:
                ends[-1] = number + 1
            else:
                ends += (number, number + 1)
        # The first of each stretch and, as in a range, the one behind its last.
        self._ends = tuple(ends)

    def __iter__(self) -> Iterator[int]:
        for place in range(0, len(self._ends), 2):
            yield from range(self._ends[place], self._ends[place + 1])

    def __len__(self) -> int:
        return sum(self._ends[1::2]) - sum(self._ends[::2])

    def __contains__(self, number: object) -> bool:
        return any(number in range(*self._ends[place : place + 2]) for place in range(0, len(self._ends), 2))

    def __add__(self, numbers: Iterable[int]) -> Seqs:
        return Seqs(numbers, self._ends)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Seqs):
            return self._ends == other._ends
        return isinstance(other, tuple) and self._ends == Seqs(other)._ends

    __hash__ = None  # type: ignore[assignment]  # as what can be equal to a tuple has to have that one's

    def __repr__(self) -> str:
        return f"Seqs({list(self)})"

    def last(self, count: int) -> tuple[int, ...]:
        """The last `count` of them, in order."""
        found: list[int] = []
        for place in range(len(self._ends), 0, -2):
            begin, end = self._ends[place - 2 : place]
            found[:0] = range(max(begin, end - (count - len(found))), end)
            if len(found) == count:
                break
        return tuple(found)


def decode_document(data: bytes, names: Iterable[str]) -> tuple[Doc, dict[str, Seqs]]:
    """As `decode`, of a document; those of its fields `names` that hold very many numbers come apart, and are empty."""
    # As `encode_document` writes a field of the document itself. No text has a line break in it.
    data, apart = _taken_apart(data, {f'\n  "{name}": [': name for name in names})
    return decode(data), apart


def decode_in_brief(line: bytes) -> Doc:
    """As `decode`, of a record; lists that hold very many numbers may be empty. For who asks for something else."""
    # No text has quotes in it without a backslash before them.
    return decode(_taken_apart(line, {f'"{name}":[': name for name in LISTS})[0])


def _taken_apart(data: bytes, heads: dict[str, str]) -> tuple[bytes, dict[str, Seqs]]:
    """`data` without the numbers behind `heads`, and these by the names of the fields."""
    apart: dict[str, Seqs] = {}
    for head, name in heads.items() if len(data) > _LONG else ():
        begin, end = data.find(head.encode()) + len(head), -1
        if begin >= len(head) and data.count(head.encode()) == 1:
            end = data.find(b"]", begin)
        found = _numbers_in(data, begin, end)
        if found is not None:
            apart[name] = found
            data = data[:begin] + data[end:]
    return data, apart


def _numbers_in(data: bytes, begin: int, end: int) -> Seqs | None:
    """The numbers between two bytes; None unless there are such, and only such as are certain."""
    found = Seqs()
    while begin < end:
        comma = data.rfind(b",", begin, begin + _LONG) if begin + _LONG < end else end
        words = data[begin:comma]
        if b",0" in b"," + words.translate(None, b" \n") or words.translate(None, b"0123456789, \n"):
            return None
        try:
            numbers = [*map(int, words.split(b","))]
        except ValueError:
            return None
        if max(numbers) >= _MOST:
            return None
        found += numbers
        begin = comma + 1
    return found or None


def check_version(doc: Doc, path: str, consequence: str = "it is read-only here") -> None:
    """Raises NewerFormat if the document at `path` is of a newer format, which this version may read but not write.

    `consequence` says what follows from that.
    """
    version = doc.get("formatVersion", FORMAT_VERSION)
    if type(version) is not int:
        raise NewerFormat(
            f"{path} has format {jsontext.line_of(version)}, which is no whole number: {consequence}",
            hint=f"install a newer agentrun, or, if an older one made it, put formatVersion back to {FORMAT_VERSION}",
        )
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has format {version}, this agentrun writes format {FORMAT_VERSION}: {consequence}",
            hint="install a newer agentrun to go on with this session",
        )


def check_replaceable(data: bytes | None, path: str) -> None:
    """Raises NewerFormat if `data`, which stands at `path`, is of a newer format. What is no document is made anew."""
    try:
        doc = decode_document(data, LISTS)[0] if data else {}
    except ValueError:
        return
    check_version(doc, path)


def without(doc: Doc, names: frozenset[str]) -> Doc:
    """The fields of `doc` that this version does not know; they survive rewriting."""
    if doc.keys() <= names:
        return {}
    return {name: value for name, value in doc.items() if name not in names}


def _encode(doc: Doc, write: Callable[[Doc], str], write_ascii: Callable[[Doc], str]) -> bytes:
    try:
        try:
            return (write(doc) + "\n").encode("utf-8")
        except UnicodeEncodeError:
            return (write_ascii(doc) + "\n").encode("ascii")
    except (ValueError, RecursionError, TypeError) as error:
        raise UsageError(f"this cannot be stored as JSON: {error}") from error
