"""JSON written a piece at a time, each element on a line of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentrun.records.codec import Doc
from agentrun.render.json import json_line


def compact(doc: Doc) -> bytes:
    """`doc` on one line without a line break."""
    return json_line(doc).rstrip(b"\n")


def array(docs: Iterable[Doc]) -> Iterator[bytes]:
    """A JSON array of `docs`."""
    separator = b"[\n"
    for doc in docs:
        yield separator + compact(doc)
        separator = b",\n"
    yield b"[]" if separator == b"[\n" else b"\n]"


def head(doc: Doc) -> bytes:
    """The beginning of an object that goes on behind the fields of `doc`."""
    return compact(doc)[:-1]


def quoted(texts: Iterable[str]) -> Iterator[bytes]:
    """A JSON string of all `texts`, one behind the other."""
    yield b'"'
    for text in texts:
        yield compact({"": text}).removeprefix(b'{"":"').removesuffix(b'"}')
    yield b'"'
