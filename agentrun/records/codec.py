"""JSON as it stands in the tree: one line per record in logs, indented documents, always valid UTF-8.

The standard library's parser is used, because loading it is what every quick command can afford.
"""

from __future__ import annotations

from agentrun.errors import NewerFormat, UsageError
from agentrun.records import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The name of a type in quotes, as in the records: nothing at run time needs `typing`, which is slow to load.
Doc = dict[str, "Any"]

# Rises only with a change that older programs cannot read. Unknown fields and event types need no new version.
FORMAT_VERSION = 1


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
        doc = decode(data) if data else {}
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
