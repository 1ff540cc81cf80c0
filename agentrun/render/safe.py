"""Stored text cannot drive a terminal: what would is shown as an escape (`\\x1b`, `\\u202e`), never sent.

Every text that comes from a user, a model, a tool or a file passes through `shown`, `shown_line` or `excerpt`
on its way to a person. Columns are counted here as well, since only text that is safe has any.
"""

from __future__ import annotations

# What is never sent of ASCII, C0 but tab and newline and DEL; the rest of what is not is in `unsafe`.
_ESCAPES = {point: f"\\x{point:02x}" for point in (*range(9), 11, 12, *range(14, 32), 127)} | {13: r"\r"}
_LINE_BREAKS = {9: r"\t", 10: r"\n"}
_WHITE = {9: " ", 10: " ", 13: " "}

# Characters looked at to fill one column: enough for any writing, and a bound for what only stacks up.
_CHARACTERS_PER_COLUMN = 20

# The signs that `theme` and `cut` use take one column: the tables that know it of others are slow to load.
NARROW_SIGNS = "○●◐◌✓✗■□›…"
# What each character takes, as far as it was met.
_WIDTHS: dict[str, int] = dict.fromkeys(NARROW_SIGNS, 1)


def shown(text: str, *, unicode: bool = True) -> str:
    """`text` with newlines and tabs as they are, and all that must not reach a terminal as escapes.

    Without `unicode` the result is ASCII: a terminal that cannot show a character is not sent it.
    """
    if text.isascii():
        return text.translate(_ESCAPES)
    from agentrun.render.unsafe import escaped, escaped_to_ascii

    safe = escaped(text)
    return safe if unicode else escaped_to_ascii(safe)


def shown_line(text: str, *, unicode: bool = True) -> str:
    """`shown` on one line: newlines and tabs are escapes as well."""
    return shown(text, unicode=unicode).translate(_LINE_BREAKS)


def excerpt(text: str, columns: int, *, unicode: bool = True) -> str:
    """The beginning of `text` on one line of at most `columns`, white space run together; no more is read."""
    beginning = text[: max(columns, 1) * _CHARACTERS_PER_COLUMN]
    words = " ".join(filter(None, beginning.translate(_WHITE).split(" ")))
    line = shown_line(words.strip(), unicode=unicode)
    if len(beginning) < len(text):
        line += "..."
    return cut(line, columns, unicode=unicode)


def tail(text: str, columns: int, lines: int, *, unicode: bool = True) -> list[str]:
    """The last `lines` of `text` as a screen of `columns` folds them; the cost does not grow with it."""
    # Where folding begins moves in big steps only, so that growing text does not shift sideways all the time.
    step = columns * (lines + 1) * _CHARACTERS_PER_COLUMN
    beginning = max(len(text) // step - 1, 0) * step
    pieces: list[str] = []
    for each in text[beginning:].rstrip("\n").split("\n")[-lines:]:
        pieces += folded(shown_line(each.replace("\t", " "), unicode=unicode), columns)
    return pieces[-lines:]


def escaped_in_json(line: str) -> str:
    """A JSON text that means the same and cannot drive a terminal: what `shown` shows is written `\\uXXXX`.

    Outside its strings, a JSON text holds none of these characters, so it stays valid. U+2028 and U+0085 are
    among them: programs that split text at every Unicode line break still find one record per line.
    """
    if line.isascii() and "\x7f" not in line:
        return line
    from agentrun.render.unsafe import escaped_in_json as escaped

    return escaped(line)


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


def folded(text: str, columns: int) -> list[str]:
    """Safe one-line `text` without colours, in pieces of at most `columns`."""
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
    import unicodedata  # here: plain ASCII needs no table

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
