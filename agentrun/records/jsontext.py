"""JSON text and what it means, by the two C functions of the standard library's parser.

They load in no time; `json`, the package around them, and the regular expressions that it makes take 5 ms, half of what
the interpreter takes to start. So it is loaded for what they do not take: text that is no JSON, for which it has the
words, and characters that have no UTF-8. They are no public names: an interpreter without them, or with others, gets
what it needs from `json`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_INFINITE = (float("inf"), float("-inf"))
_WHITE = " \t\n\r"
_SEPARATORS = (",", ":")
# Elements of a list that are made into one text.
_AT_ONCE = 1000


def value_of(text: str) -> Any:
    """What the JSON `text` means. Raises ValueError if it is none, RecursionError if it is nested too deep."""
    try:
        value, end = _scan(text, 0)
    except (StopIteration, ValueError, SystemError):
        # SystemError: until Python 3.12 it looks for its own error among the modules that are loaded, and finds none.
        return _value_by_json(text)
    return value if end == len(text) or not text[end:].strip(_WHITE) else _value_by_json(text)


def line_of(value: Any) -> str:
    """`value` as JSON without any white space. Raises ValueError, TypeError or RecursionError for what has no JSON."""
    return "".join(_pieces(value, 0))


def document_of(value: Any, margin: str = "\n") -> str:
    """As `line_of`, indented by two spaces for each level; `margin` is what comes before the closing bracket."""
    inner = f"{margin}  "
    # Lists, and no generators: those would take another frame of the stack for each level.
    if isinstance(value, dict) and value:
        pairs = [f"{inner}{line_of(key)}: {document_of(each, inner)}" for key, each in value.items()]
        return "{" + ",".join(pairs) + margin + "}"
    if isinstance(value, list | tuple) and value:
        # Part by part: as texts of their own, very many numbers take many times the room.
        parts = [
            ",".join([inner + document_of(each, inner) for each in value[at : at + _AT_ONCE]])
            for at in range(0, len(value), _AT_ONCE)
        ]
        return "[" + ",".join(parts) + margin + "]"
    return line_of(value)


def ascii_line_of(value: Any) -> str:
    """As `line_of`, with escapes for what is not ASCII: lone surrogates have no other form in a file."""
    import json

    return json.dumps(value, allow_nan=False, separators=_SEPARATORS)


def ascii_document_of(value: Any) -> str:
    """As `document_of`, likewise."""
    import json

    return json.dumps(value, allow_nan=False, indent=2)


def _float(text: str) -> float | str:
    number = float(text)
    return text if number in _INFINITE else number


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) < 4300 else digits


class _Reading:
    """JSON has no NaN and no Infinity, but Python's parser lets them in, and makes one of 1e999: kept as their text."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_constant = str
    parse_float = staticmethod(_float)
    parse_int = int


def _value_by_json(text: str) -> Any:
    import json

    try:
        return json.JSONDecoder(parse_constant=str, parse_float=_float).decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses integers of more than 4,300 digits; such a number is kept as its text.
        return json.JSONDecoder(parse_constant=str, parse_float=_float, parse_int=_int).decode(text)


def _refused(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _c_parts() -> tuple[Callable[[str, int], tuple[Any, int]], Callable[[Any, int], Iterable[str]]]:
    from _json import encode_basestring, make_encoder, make_scanner

    comma, colon = _SEPARATORS
    pieces = make_encoder(None, _refused, encode_basestring, None, colon, comma, False, False, False)
    return make_scanner(_Reading()), pieces  # type: ignore[arg-type]


def _parts_of_json() -> tuple[Callable[[str, int], tuple[Any, int]], Callable[[Any, int], Iterable[str]]]:
    import json

    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=_SEPARATORS)
    scan = json.JSONDecoder(parse_constant=str, parse_float=_float).raw_decode
    return scan, lambda value, _: encoder.encode(value)


try:
    _scan, _pieces = _c_parts()
except (ImportError, AttributeError, TypeError):
    _scan, _pieces = _parts_of_json()
