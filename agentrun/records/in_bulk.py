"""Records out of many lines at once, for whoever reads a whole log: a third of the time of one line after the other.

Nearly every line has the form in which agentrun writes it. One regular expression takes the fields out of all those
lines in a single call, and what it is sure of is what the parser would have found: between the quotes of a field there
is no other quote, no backslash and no control character. A text with escapes and whatever is nested goes to the parser,
and so does any line of another form. Where something is not certain (a line that is no record, bytes that are no UTF-8,
a string that a newline cuts) nothing is returned: those lines are to be read one by one, with the words for what is
wrong with them.

Nothing that a quick command does needs this: loading `re` takes half as long as starting the interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from itertools import repeat

from agentrun.records.codec import Doc
from agentrun.records.event import Event, check_payload
from agentrun.records.fields import ACTOR, check_fields
from agentrun.records.jsontext import value_of
from agentrun.records.message import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")
    # What each field holds in every line; the last has the lines of another form.
    Columns = tuple[tuple[str, ...], ...]


# None but newlines is in lines that agentrun wrote: white space between tokens, or damage within a string.
_CONTROLS = bytes(range(0x20))
_NUMBER = "([1-9][0-9]{0,17})"
_TIME = '"([0-9TZ:.-]*)"'
_NAME = '"([^"]+)"'
_PLAIN_TEXT = '"([^"]*)"'
# The quotes that a backslash stands before belong to the text; the parser has the last word on them.
_ESCAPED_TEXT = r'"([^"]*(?:(?<=\\)"[^"]*)*)"'
_ACTOR = r"(null|\{[^}]*\})"


def messages_in(lines: bytes, session_id: str, read: Callable[[Doc], Message]) -> list[Message] | None:
    """The messages of whole `lines`, as `read` would make them of each; None where they are to be read one by one."""
    escapes = b"\\" in lines
    return _records(lines, _message_line(escapes), partial(_messages, session_id, escapes), read)


def events_in(lines: bytes, session_id: str, run_id: str, read: Callable[[Doc], Event]) -> list[Event] | None:
    """The events of whole `lines`, as `read` would make them of each; None where they are to be read one by one."""
    return _records(lines, _event_line(), partial(_events, session_id, run_id), read)


def _records(
    lines: bytes, form: re.Pattern[str], made_of: Callable[[Columns], list[T]], read: Callable[[Doc], T]
) -> list[T] | None:
    controls = len(lines) - len(lines.translate(None, _CONTROLS))
    try:
        rows = form.findall(lines.decode("utf-8"))
        # Each match ends with a newline: as many as there are lines, and none of them went on into the next line.
        if len(rows) != controls:
            return None
        columns = tuple(zip(*rows, strict=True))
        made = made_of(columns)
        if any(columns[-1]):
            for index, other in enumerate(columns[-1]):
                if other:
                    made[index] = read(_object(other))
        return made
    except (ValueError, RecursionError):
        return None


@cache
def _message_line(escapes: bool) -> re.Pattern[str]:
    return _line(
        f'"seq":{_NUMBER},"sessionId":{_NAME},"runId":"(run-[1-9][0-9]{{0,17}})"',
        f'"role":"(user|assistant|system)","mode":"([a-z-]*)","text":{_ESCAPED_TEXT if escapes else _PLAIN_TEXT}',
        rf'"at":{_TIME},"key":(?:null|"([^"\\]+)"),"actor":{_ACTOR}',
    )


@cache
def _event_line() -> re.Pattern[str]:
    return _line(
        f'"sessionId":{_NAME},"runId":{_NAME},"seq":{_NUMBER}',
        rf'"type":"([a-z_.]*)","at":{_TIME},"generation":(0|[1-9][0-9]{{0,17}}),"payload":(\{{.*\}})',
    )


def _line(*fields: str) -> re.Pattern[str]:
    return re.compile(r"(?:\{" + ",".join(fields) + r"\}|(.+))\n")


def _messages(session_id: str, escapes: bool, columns: Columns) -> list[Message]:
    seqs, session_ids, run_ids, roles, modes, texts, times, keys, actors, _ = columns
    _check_all(session_ids, session_id)
    read = _unescaped(texts) if escapes else texts
    said = {actor: _object(actor) for actor in {*actors} - {"", "null"}}
    for actor in said.values():
        check_fields(actor, ACTOR, "message")
    fields = zip(
        _numbers(seqs), repeat(session_id), run_ids, roles, modes, read, times,
        [key or None for key in keys], map(said.get, actors), repeat(None), repeat(None), repeat(_NOTHING),
    )  # fmt: skip
    return list(map(partial(tuple.__new__, Message), fields))


def _events(session_id: str, run_id: str, columns: Columns) -> list[Event]:
    session_ids, run_ids, seqs, kinds, times, generations, payloads, _ = columns
    _check_all(session_ids, session_id)
    _check_all(run_ids, run_id)
    said = [_object(payload or "{}") for payload in payloads]
    for kind, payload in zip(kinds, said, strict=True):
        check_payload(kind, payload)
    fields = zip(
        repeat(session_id), repeat(run_id), _numbers(seqs), kinds, times, _numbers(generations), said,
        repeat(_NOTHING),
    )  # fmt: skip
    return list(map(partial(tuple.__new__, Event), fields))


# Of a line of another form every field is empty; what comes of it is replaced.
def _check_all(found: tuple[str, ...], wanted: str) -> None:
    if not {*found} <= {wanted, ""}:
        raise ValueError("of another session or run")


def _numbers(texts: tuple[str, ...]) -> list[int]:
    return [int(text or 0) for text in texts]


# As one list, in a third of the time. Where a text ended too early, or not at its end, all that follows would be read
# outside of strings: there JSON has no backslash, so no text leads back into one, and the last quote of all opens one
# that has no end.
def _unescaped(texts: tuple[str, ...]) -> list[str]:
    between = '","'
    found: list[str] = value_of(f'["{between.join(texts)}"]')
    return found


def _object(text: str) -> Doc:
    value = value_of(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


# As the defaults of the records' last fields: nobody writes to it.
_NOTHING: Doc = {}
