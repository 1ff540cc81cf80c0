"""Keeping bytes beside their file before something else takes their place. What was kept once is never replaced."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from agentrun.store.disk import Directory


def keep_aside(directory: Directory, name: str, data: bytes) -> str:
    """Keeps `data` as `name`, or, where other bytes are kept by that name, as one that is still free; returns which.

    The same bytes are kept once: whoever died between keeping them and what came next does both again.
    """
    for each in _names(name):
        if directory.stat(each) is None:
            directory.replace(each, data)
            return each
        if directory.read(each) == data:
            return each
    raise AssertionError("there is always another name")


def kept_as(directory: Directory, name: str, data: bytes) -> str | None:
    """The name by which `keep_aside` has kept these bytes; None if they are kept nowhere."""
    for each in _names(name):
        if directory.stat(each) is None:
            return None
        if directory.read(each) == data:
            return each
    raise AssertionError("there is always another name")


def _names(name: str) -> Iterator[str]:
    yield name
    yield f"{name}-again"
    for number in count(2):
        yield f"{name}-again-{number}"
