"""Makes ids and checks those that come from outside, before any path is made of them."""

from __future__ import annotations

import os
import time

from agentrun.errors import Denied

# Plain sets of characters: loading `re` costs every start 3 ms.
_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_LATER = _FIRST | frozenset("._-")
_HEX = frozenset("0123456789abcdef")
_LONGEST = 64
# A number of more digits counts no runs.
_LONGEST_NUMBER = 18
# Crockford's alphabet: sorts like the number, and has no letters that read alike.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

SESSION_PREFIX = "session-"
_RUN_PREFIX = "run-"


def checked_id(text: str, what: str, hint: str | None = None) -> str:
    """`text` itself if it may become one path component.

    Raises Denied naming `what` it should have been; without a `hint` it proposes an id that reads like `text`.
    """
    if not is_id(text):
        article = "an" if what[0] in "aeiou" else "a"
        near = near_id(text)
        raise Denied(
            f"{text[:80]!r} is not {article} {what} id: letters, digits, '.', '_' and '-', at most 64, "
            "beginning with a letter or digit",
            hint=hint or (f"this is one: {near}" if near else None),
        )
    return text


def near_id(text: str) -> str:
    """An id that reads like `text`, if there is one."""
    kept = "".join(each if each in _LATER else "-" for each in text[:_LONGEST])
    return kept.strip("._-") if any(each in _FIRST for each in text) else ""


def is_id(text: str) -> bool:
    """Whether `text` may become one path component."""
    return text[:1] in _FIRST and len(text) <= _LONGEST and _LATER.issuperset(text)


def new_session_id() -> str:
    """A session id that sorts by creation: microseconds since the epoch, then 25 random bits.

    Several processes that make ids in tight loops meet in the same microsecond now and then; in both, never.
    """
    microseconds = time.time_ns() // 1_000
    chance = int.from_bytes(os.urandom(4), "big") >> 7
    return SESSION_PREFIX + _digits(microseconds, 11) + _digits(chance, 5)


def run_id(number: int) -> str:
    """The id of a session's `number`-th run, from 1."""
    return f"{_RUN_PREFIX}{number}"


def run_number(text: str) -> int | None:
    """The number in `run-7`, or None if `text` is no run id."""
    number = text.removeprefix(_RUN_PREFIX)
    is_number = number.isascii() and number.isdigit() and number[0] != "0" and len(number) <= _LONGEST_NUMBER
    return int(number) if is_number and number != text else None


def is_sha256(text: str) -> bool:
    """Whether `text` is a hash as the tree's files are named by: a stored field is no path before that is sure."""
    return len(text) == 64 and _HEX.issuperset(text)


def _digits(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
