"""What a key may hold. A reader gets the value of a key and returns what it means, or raises `Wrong`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrun.config.durations import LONGEST_DURATION_SECONDS, parse_duration
from agentrun.errors import UsageError

Reader = Callable[[Any], Any]


class Wrong(Exception):
    """Says what the value of a key should have been."""


def reader(expected: str, fits: Callable[[Any], bool], meaning: Reader = lambda value: value) -> Reader:
    def read(value: Any) -> Any:
        if not fits(value):
            raise Wrong(expected)
        return meaning(value)

    return read


def one_of(*words: str) -> Reader:
    return reader(" or ".join(f'"{word}"' for word in words), lambda value: value in words)


def count(at_least: int) -> Reader:
    return reader(f"a whole number of at least {at_least}", lambda v: type(v) is int and v >= at_least)


def number(at_least: float, at_most: float) -> Reader:
    return reader(
        f"a number from {at_least:g} to {at_most:g}",
        lambda v: type(v) in (int, float) and at_least <= v <= at_most,
        float,
    )


def seconds(at_least: float = 0.001, at_most: float = LONGEST_DURATION_SECONDS) -> Reader:
    def read(value: Any) -> float:
        try:
            seconds = parse_duration(text(value))
        except (UsageError, Wrong) as error:
            raise Wrong('a duration such as "500ms", "30s", "10m", "2h" or "7d"') from error
        if seconds < at_least:
            raise Wrong(f"a duration of at least {at_least:g} s")
        if seconds > at_most:
            raise Wrong(f"a duration of at most {at_most:g} s")
        return seconds

    return read


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_argv(value: Any) -> bool:
    # An argument ends at its first NUL (execve(2)), so there must be none.
    return _is_texts(value) and value != [] and not any("\0" in each for each in value)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(_is_json(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int) or (isinstance(value, float) and abs(value) < float("inf"))


def _is_address(value: Any) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    from urllib.parse import urlsplit  # here: most configurations hold none

    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False


text = reader("text", lambda value: isinstance(value, str))
name = reader("text that is not empty", lambda value: isinstance(value, str) and value != "")
address = reader('an address such as "http://127.0.0.1:8080/v1"', _is_address)
texts = reader("a list of texts", _is_texts, tuple)
argv = reader('a command as a list of texts, such as ["python3", "query.py"]', _is_argv, tuple)
argvs = reader(
    'a list of commands, such as [["python3", "check.py"]]',
    lambda value: isinstance(value, list) and all(_is_argv(each) for each in value),
    lambda value: tuple(tuple(each) for each in value),
)
variables = reader(
    "a table of texts",
    lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
)
table = reader("a table", lambda value: isinstance(value, dict))
schema = reader(
    "a table in JSON's terms, without dates and infinite numbers",
    lambda value: isinstance(value, dict) and _is_json(value),
)
yes_or_no = reader("true or false", lambda value: isinstance(value, bool))
