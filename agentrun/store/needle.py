"""What is searched for, as it may stand in the bytes of a log: most lines need not be decoded to know they lack it.

JSON has several spellings for a character. A pattern of all of them finds every line that holds the text; it may find
a few that only seem to, so what counts is the second pattern, on the text that was decoded.
"""

from __future__ import annotations

import re

from agentrun.errors import UsageError
from agentrun.named import NamedTuple

# A pattern has a part for each character; nobody types more, and a whole file given by mistake is no search.
LONGEST = 1000

_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# One letter, two small forms by its place in the word: the capital leads to one of them only.
_OTHER_FORM = {"σ": "ς", "ς": "σ"}
# A single letter is everywhere: looking for it first would be for nothing.
_LEAST_CORE = 2
# The longest spelling: a surrogate pair as two escapes of six bytes.
_MOST_BYTES = 12


class Needle(NamedTuple):
    """`in_bytes` finds every place of a log where the text may stand, `in_text` where it does.

    `reach` is how many bytes it takes there at the most. `core` is a part of it, in small letters, that has no spelling
    but itself where nothing is escaped by its number; None if it has no such part worth looking for. Without letters of
    ASCII in it, which may be capitals, the bytes can be looked through as they are. One that `is_beyond_ascii` has a
    character that ASCII spells by its number only.
    """

    in_bytes: re.Pattern[bytes]
    in_text: re.Pattern[str]
    reach: int
    core: bytes | None
    core_has_letters: bool
    is_beyond_ascii: bool


def needle(text: str) -> Needle:
    """The patterns of `text`, capitals or not. Raises UsageError if it is empty or too long."""
    if not text:
        raise UsageError("there is nothing to search for: the text is empty")
    if len(text) > LONGEST:
        raise UsageError(f"at most {LONGEST} characters can be searched for, these are {len(text)}")
    forms = [_forms(character) for character in text]
    core = _core(text, forms)
    return Needle(
        re.compile(b"".join(_spelled(each) for each in forms)),
        re.compile("".join(f"[{''.join(map(re.escape, sorted(each)))}]" for each in forms)),
        len(text) * _MOST_BYTES,
        core,
        core is not None and core != core.upper(),
        not all(any(map(str.isascii, its)) for its in forms),
    )


def _core(text: str, forms: list[set[str]]) -> bytes | None:
    runs = [""]
    for character, its in zip(text, forms, strict=True):
        if _is_plain(character, its):
            runs[-1] += character.lower()
        else:
            runs.append("")
    longest = max(runs, key=len)
    return longest.encode("utf-8") if len(longest) >= _LEAST_CORE else None


def _is_plain(character: str, forms: set[str]) -> bool:
    """Whether making the capitals of ASCII small makes all that it is spelled as the same bytes."""
    if character in _SHORT or character < " " or any(_has_no_utf8(each) for each in forms):
        return False
    return len(forms) == 1 or (character.isascii() and forms == {character.lower(), character.upper()})


def _forms(character: str) -> set[str]:
    """The character as capital and small letter."""
    forms = {character}
    for _ in range(2):
        forms |= {_OTHER_FORM.get(each, each) for each in forms}
        forms |= {other for each in forms for other in (each.lower(), each.upper(), each.casefold())}
    # Some have capitals of several letters, such as the German sharp s: those are other words.
    return {each for each in forms if len(each) == 1}


def _spelled(forms: set[str]) -> bytes:
    """Every spelling of every form. The plain ones come first: they are what nearly every log holds."""
    plain = sorted(each.encode("utf-8") for each in forms if not _has_no_utf8(each))
    escapes = sorted(spelling for each in forms for spelling in _escapes(each))
    return b"(?:" + b"|".join([*(re.escape(each) for each in plain), *escapes]) + b")"


def _escapes(character: str) -> list[bytes]:
    point = ord(character)
    if point < 0x10000:
        units = [point]
    else:
        high, low = divmod(point - 0x10000, 0x400)
        units = [0xD800 + high, 0xDC00 + low]
    spellings = [b"".join(_unit(unit) for unit in units)]
    if character in _SHORT:
        spellings.append(re.escape(_SHORT[character].encode("ascii")))
    return spellings


def _unit(unit: int) -> bytes:
    digits = (f"[{each}{each.upper()}]" if each.isalpha() else each for each in f"{unit:04x}")
    return rb"\\u" + "".join(digits).encode("ascii")


def _has_no_utf8(character: str) -> bool:
    return 0xD800 <= ord(character) < 0xE000
