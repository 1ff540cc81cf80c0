"""What another program's record of a conversation tells, in the order of its file, in words that are nobody's own.

`at` is a stored time (see `clock.timestamp`), or None where the file gives none.
"""

from __future__ import annotations

from typing import NamedTuple

from agentrun.records.codec import Doc


class Head(NamedTuple):
    """A conversation begins. `session_id` is its name in the other program, `version` that program's."""

    session_id: str | None
    at: str | None
    title: str | None = None
    working_directory: str | None = None
    version: str | None = None


class Titled(NamedTuple):
    """What the conversation is called, learnt later."""

    title: str


class Said(NamedTuple):
    """Something that the user said."""

    text: str
    at: str | None
    origin: str | None = None


class Call(NamedTuple):
    """A call that a reply asks for; without an `at` of its own it was asked for with the reply."""

    call_id: str
    name: str
    arguments: Doc | str
    at: str | None = None


class Replied(NamedTuple):
    """A reply of the model, or the next piece of one: pieces with the same `group` that follow each other are one.

    `began_at` is when the model was asked, where the file tells.
    """

    group: str
    text: str
    calls: tuple[Call, ...]
    at: str | None
    model: str | None = None
    usage: Doc | None = None
    stop_reason: str | None = None
    began_at: str | None = None
    origin: str | None = None


class Used(NamedTuple):
    """What the last reply used, learnt after it."""

    usage: Doc


class Resulted(NamedTuple):
    """What a call returned."""

    call_id: str
    output: str
    at: str | None
    is_error: bool = False


class Over(NamedTuple):
    """The other program says that the request is done with: `completed`, `cancelled` or `failed`, and why."""

    how: str
    reason: str | None
    at: str | None


class PassedOver(NamedTuple):
    """A line or part that is not taken in, by its kind."""

    kind: str


Told = Head | Titled | Said | Replied | Used | Resulted | Over | PassedOver
