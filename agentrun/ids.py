"""Makes ids and checks those that come from outside, before any path is made of them."""

from __future__ import annotations

import os
import re
import time

from agentrun.errors import Denied

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RUN = re.compile(r"run-([1-9][0-9]{0,17})", re.ASCII)
# Crockford's alphabet: sorts like the number, and has no letters that read alike.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

SESSION_PREFIX = "session-"


def checked_id(text: str, what: str) -> str:
    """`text` itself if it may become one path component. Raises Denied naming `what` it should have been."""
    if not is_id(text):
        raise Denied(
            f"{text[:80]!r} is not a {what} id: letters, digits, '.', '_' and '-', at most 64, "
            "beginning with a letter or digit"
        )
    return text


def is_id(text: str) -> bool:
    """Whether `text` may become one path component."""
    return _ID.fullmatch(text) is not None


def new_session_id() -> str:
    """A session id that sorts by creation: microseconds since the epoch, then 25 random bits.

    Several processes that make ids in tight loops meet in the same microsecond now and then; in both, never.
    """
    microseconds = time.time_ns() // 1_000
    chance = int.from_bytes(os.urandom(4), "big") >> 7
    return SESSION_PREFIX + _digits(microseconds, 11) + _digits(chance, 5)


def run_id(number: int) -> str:
    """The id of a session's `number`-th run, from 1."""
    return f"run-{number}"


def run_number(text: str) -> int | None:
    """The number in `run-7`, or None if `text` is no run id."""
    match = _RUN.fullmatch(text)
    return int(match[1]) if match else None


def _digits(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
