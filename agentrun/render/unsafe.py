"""The characters beyond ASCII that never reach a terminal, for `safe`, which loads this when it meets such text.

The patterns take 5 ms to make, half the time in which the interpreter starts.
"""

from __future__ import annotations

import re

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
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_UNSAFE_ANYWHERE = re.compile(f"[{_NEVER_SENT}]")


def escaped(text: str) -> str:
    """`text` with an escape for each character that is never sent."""
    return _UNSAFE.sub(_escape, text)


def escaped_to_ascii(text: str) -> str:
    """`text` with an escape for each character that is not ASCII."""
    return _NOT_ASCII.sub(_escape, text)


def escaped_in_json(line: str) -> str:
    """`line`, a JSON text, with the escapes of JSON for the same characters."""
    return _UNSAFE_ANYWHERE.sub(_json_escape, line)


def _escape(match: re.Match[str]) -> str:
    text = match[0]
    if match.re is _UNSAFE and match["emoji"]:
        return text
    point = ord(text)
    if text == "\r":
        return r"\r"
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _json_escape(match: re.Match[str]) -> str:
    point = ord(match[0])
    if point < 0x10000:
        return f"\\u{point:04x}"
    high, low = divmod(point - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
