"""JSON as it stands in the tree: one line per record in logs, indented documents, always valid UTF-8.

The standard library's parser is used, because loading it is what every quick command can afford.
"""

from __future__ import annotations

import json
import math

from agentrun.errors import Denied, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The name of a type in quotes, as in the records: nothing at run time needs `typing`, which is slow to load.
Doc = dict[str, "Any"]

# Rises only with a change that older programs cannot read. Unknown fields and event types need no new version.
FORMAT_VERSION = 1


def _float(text: str) -> float | str:
    number = float(text)
    return text if number in (math.inf, -math.inf) else number


# JSON has no NaN and no Infinity, but Python's parser lets them in, and makes one of 1e999: kept as their text.
_DECODER = json.JSONDecoder(parse_constant=str, parse_float=_float)
# Python refuses integers of more than 4,300 digits; such a number is kept as its text.
_PATIENT_DECODER = json.JSONDecoder(
    parse_constant=str, parse_float=_float, parse_int=lambda digits: int(digits) if len(digits) < 4300 else digits
)
_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DOCUMENT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)
# Lone surrogates (a file name, an argument that is not UTF-8) have no UTF-8 form but have a JSON escape.
_ASCII_LINE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_ASCII_DOCUMENT = json.JSONEncoder(allow_nan=False, indent=2)


def encode_line(doc: Doc) -> bytes:
    """`doc` as one line with its newline. Raises UsageError for what JSON cannot hold (NaN, too deep)."""
    return _encode(doc, _LINE, _ASCII_LINE)


def encode_document(doc: Doc) -> bytes:
    """`doc` indented, with a newline at its end, for `cat` and for diffs. Raises UsageError as `encode_line`."""
    return _encode(doc, _DOCUMENT, _ASCII_DOCUMENT)


def decode(data: bytes) -> Doc:
    """The JSON object in `data`. Raises ValueError for anything else, whatever is wrong with it."""
    text = data.decode("utf-8")
    try:
        value = _value(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def check_version(doc: Doc, path: str) -> None:
    """Raises Denied if the document at `path` is of a newer format, which this version may read but not write."""
    version = doc.get("formatVersion", FORMAT_VERSION)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise Denied(
            f"{path} has format {version}, this agentrun writes format {FORMAT_VERSION}: it is read-only here",
            hint="install a newer agentrun to go on with this session",
        )


def without(doc: Doc, names: frozenset[str]) -> Doc:
    """The fields of `doc` that this version does not know; they survive rewriting."""
    return {name: value for name, value in doc.items() if name not in names}


def _value(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _PATIENT_DECODER.decode(text)


def _encode(doc: Doc, encoder: json.JSONEncoder, ascii_encoder: json.JSONEncoder) -> bytes:
    try:
        try:
            return (encoder.encode(doc) + "\n").encode("utf-8")
        except UnicodeEncodeError:
            return (ascii_encoder.encode(doc) + "\n").encode("ascii")
    except (ValueError, RecursionError, TypeError) as error:
        raise UsageError(f"this cannot be stored as JSON: {error}") from error
