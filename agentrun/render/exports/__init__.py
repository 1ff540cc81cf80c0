"""The forms in which a session or a run leaves agentrun, one module each, and the table of them.

A form's `write` returns the pieces of one file, made as they are taken: whatever the length of the history, one turn of
it is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from agentrun.named import NamedTuple
from agentrun.records.exported import Export

Write = Callable[[Export], Iterator[bytes]]


class Form(NamedTuple):
    """A form of export: the module that writes it, the endings of file names that ask for it, what it is for."""

    module: str
    suffixes: tuple[str, ...]
    about: str


FORMS = {
    "markdown": Form("markdown", (".md", ".markdown"), "to read"),
    "json": Form("stored", (".json",), "everything, as it is stored"),
    "openai": Form("openai_messages", (".openai.json",), "a list of chat messages, as the OpenAI API takes it"),
    "atif": Form("atif", (".atif.json",), "a trajectory, for training and evaluation"),
    "otlp": Form("otlp", (".otlp.json",), "OpenTelemetry traces"),
}


def form_of(path: str) -> str | None:
    """The form that the name of a file asks for; None if it asks for none."""
    name = path.lower()
    matches = [(suffix, form) for form, about in FORMS.items() for suffix in about.suffixes if name.endswith(suffix)]
    return max(matches, key=lambda match: len(match[0]))[1] if matches else None


def writer_of(form: str) -> Write:
    """What writes `form`, a key of `FORMS`. Loaded only now: no command needs all of them."""
    write: Write = import_module(f"agentrun.render.exports.{FORMS[form].module}").write
    return write
