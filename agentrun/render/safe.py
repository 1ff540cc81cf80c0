"""Stored text cannot drive a terminal: what would is shown as an escape (`\\x1b`, `\\u202e`), never sent.

Every text that comes from a user, a model, a tool or a file passes through `shown`, `shown_line` or `excerpt`
on its way to a person. Columns are counted here as well, since only text that is safe has any.
"""

from __future__ import annotations

import re
import unicodedata

# What is never sent: C0 but tab and newline, DEL, C1; lone surrogates and noncharacters, which mean nothing;
# the line and paragraph separators; and everything that is invisible or changes the order of its neighbours
# (Unicode's general category Cf and its property Default_Ignorable_Code_Point), in which text hides from its
# reader. Emoji joiners and selectors are in here too; `_EMOJI` takes out the ones that are in their place.
_NEVER_SENT = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
) + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17))

_PICTURES = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935\u2b05-\u2b55\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
)
_PICTURE = f"[{_PICTURES}][\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
# One picture made of several, a picture with its selector, a keycap: there joiners and selectors pass.
_EMOJI = f"{_PICTURE}(?:\u200d{_PICTURE})+|[{_PICTURES}][\ufe0e\ufe0f]|[0-9#*]\ufe0f\u20e3"

_UNSAFE = re.compile(f"(?P<emoji>{_EMOJI})|[{_NEVER_SENT}]")
_UNSAFE_IN_ASCII = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_LINE_BREAKS = re.compile("[\t\n]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_UNSAFE_ANYWHERE = re.compile(f"[{_NEVER_SENT}]")
_WHITE = re.compile("[ \t\r\n]+")

_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
# Characters looked at to fill one column: enough for any writing, and a bound for what only stacks up.
_CHARACTERS_PER_COLUMN = 20

_WIDTHS: dict[str, int] = {}


def shown(text: str, *, unicode: bool = True) -> str:
    """`text` with newlines and tabs as they are, and all that must not reach a terminal as escapes.

    Without `unicode` the result is ASCII: a terminal that cannot show a character is not sent it.
    """
    if text.isascii():
        return _UNSAFE_IN_ASCII.sub(_escape, text)
    safe = _UNSAFE.sub(_escape, text)
    return safe if unicode else _NOT_ASCII.sub(_escape, safe)


def shown_line(text: str, *, unicode: bool = True) -> str:
    """`shown` on one line: newlines and tabs are escapes as well."""
    return _LINE_BREAKS.sub(_escape, shown(text, unicode=unicode))


def excerpt(text: str, columns: int, *, unicode: bool = True) -> str:
    """The beginning of `text` on one line of at most `columns`, white space run together; no more is read."""
    beginning = text[: max(columns, 1) * _CHARACTERS_PER_COLUMN]
    line = shown_line(_WHITE.sub(" ", beginning).strip(), unicode=unicode)
    if len(beginning) < len(text):
        line += "..."
    return cut(line, columns, unicode=unicode)


def tail(text: str, columns: int, lines: int, *, unicode: bool = True) -> list[str]:
    """The last `lines` of `text` as a screen of `columns` folds them; the cost does not grow with it."""
    # Where folding begins moves in big steps only, so that growing text does not shift sideways all the time.
    step = columns * (lines + 1) * _CHARACTERS_PER_COLUMN
    beginning = max(len(text) // step - 1, 0) * step
    folded: list[str] = []
    for each in text[beginning:].rstrip("\n").split("\n")[-lines:]:
        folded += _folded(shown_line(each.replace("\t", " "), unicode=unicode), columns)
    return folded[-lines:]


def escaped_in_json(line: str) -> str:
    """A JSON text that means the same and cannot drive a terminal: what `shown` shows is written `\\uXXXX`.

    Outside its strings, a JSON text holds none of these characters, so it stays valid. U+2028 and U+0085 are
    among them: programs that split text at every Unicode line break still find one record per line.
    """
    return line if line.isascii() and "\x7f" not in line else _UNSAFE_ANYWHERE.sub(_json_escape, line)


def columns_of(text: str) -> int:
    """The columns that safe one-line text takes, at most.

    Terminals disagree about joined emoji: some draw one picture, some draw its parts side by side. The larger
    number is given, so that what fits by this count fits everywhere; nothing may be aligned behind such text.
    """
    if text.isascii():
        return len(text)
    return sum(_steps(text))


def cut(text: str, columns: int, *, unicode: bool = True) -> str:
    """Safe one-line `text`, cut to at most `columns` with an ellipsis if it is longer."""
    if len(text) * 2 <= columns or columns_of(text) <= columns:
        return text
    ellipsis = "…" if unicode else "..."
    room = columns - len(ellipsis)
    if room < 0:
        return ellipsis[: max(columns, 0)]
    end, used = 0, 0
    for end, step in enumerate(_steps(text)):  # noqa: B007 - the index of the first character that has no room
        if used + step > room:
            break
        used += step
    # A joiner at the end would take the ellipsis into the picture.
    return text[:end].rstrip("\u200d ") + ellipsis


def padded(text: str, columns: int) -> str:
    """Safe one-line `text`, filled up with spaces to `columns`."""
    return text + " " * (columns - columns_of(text))


def _folded(text: str, columns: int) -> list[str]:
    """Safe one-line `text` in pieces of at most `columns`."""
    pieces, start, used = [], 0, 0
    for end, step in enumerate(_steps(text)):
        if used + step > columns and end > start:
            pieces.append(text[start:end])
            start, used = end, 0
        used += step
    return [*pieces, text[start:]]


def _steps(text: str) -> list[int]:
    """The columns that each character of `text` adds."""
    steps = []
    before = 0
    for character in text:
        step = _WIDTHS.get(character)
        if step is None:
            step = _WIDTHS.setdefault(character, _width(character))
        if character == "\ufe0f" and before == 1:
            # The selector makes a narrow sign a wide picture, where the terminal knows it.
            step = 1
        before = step
        steps.append(step)
    return steps


def _width(character: str) -> int:
    if character in "\u200d\ufe0e\ufe0f" or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    # Flags are pairs of letters, which some terminals draw wide one by one.
    point = ord(character)
    if 0x1F1E6 <= point <= 0x1F1FF:
        return 2
    # Pictures and ideographs that are newer than this Python's tables.
    is_new = unicodedata.category(character) == "Cn"
    return 2 if is_new and (0x1F000 <= point <= 0x1FAFF or 0x20000 <= point <= 0x3FFFF) else 1


def _escape(match: re.Match[str]) -> str:
    text = match[0]
    if match.re is _UNSAFE and match["emoji"]:
        return text
    if text in _SHORT:
        return _SHORT[text]
    point = ord(text)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _json_escape(match: re.Match[str]) -> str:
    point = ord(match[0])
    if point < 0x10000:
        return f"\\u{point:04x}"
    high, low = divmod(point - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
