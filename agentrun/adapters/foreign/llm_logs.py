"""Logs of `llm` (https://llm.datasette.io): an SQLite database with all conversations.

Up to version 0.35 a `responses` row is a prompt with its reply; since then a `turns` row points into a tree of
`messages` with `parts`. A database that was carried over may have both. It is opened for reading only, and only what
tables have stored is read: a view, a trigger, a computed column or a virtual table in a database from elsewhere is
somebody's program, and may make gigabytes of nothing.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from agentrun.adapters.foreign.lines import LONGEST, beginning, doc_of, text_of, time_of
from agentrun.errors import CorruptRecord
from agentrun.records.codec import Doc, decode
from agentrun.records.foreign import Call, Head, PassedOver, Replied, Resulted, Said, Told

KIND = "llm"
MAGIC = b"SQLite format 3\0"
# Messages of one turn that are followed back; a chain that is longer, or a ring, is cut there.
_LONGEST_CHAIN = 10_000

Row = dict[str, object]

# What makes a table that has no rows of its own (https://www.sqlite.org/vtab.html), and the marks of generated columns
# in `pragma table_xinfo`.
_VIRTUAL = re.compile(r"(?i)\s*create\s+virtual\b")
_COMPUTED = (2, 3)


def read(path: str) -> Iterator[Told]:
    """What the database tells, a conversation after the other. Raises CorruptRecord if it is none of `llm`."""
    try:
        connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise _damaged(path, error) from error
    try:
        yield from _Database(connection, path).told()
    except sqlite3.Error as error:
        raise _damaged(path, error) from error
    finally:
        connection.close()


def _damaged(path: str, error: object) -> CorruptRecord:
    return CorruptRecord(f"{path}: no database of llm can be read: {error}", path=path, offset=0)


class _Database:
    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma query_only = on")
        rows = connection.execute("select name, sql from sqlite_master where type = 'table'")
        self._tables = {str(name) for name, sql in rows if not _VIRTUAL.match(str(sql))}
        self._stored: set[str] = set()
        self._path = path
        if not self._tables & {"responses", "turns"}:
            raise _damaged(path, "it has neither a table responses nor a table turns")

    def told(self) -> Iterator[Told]:
        for thread in self._rows("threads", "order by id"):
            yield from self._thread(thread)
        yield from self._responses()

    def _rows(self, table: str, rest: str = "", *values: object) -> Iterator[Row]:
        """Rows of a table; none if there is no such table. `table` and `rest` are ours, never the database's."""
        if table not in self._tables:
            return
        self._check_stored(table)
        cursor = self._connection.execute(f'select * from "{table}" {rest}', values)
        names = [each[0] for each in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))

    def _check_stored(self, table: str) -> None:
        """Raises CorruptRecord if what a column of it holds is computed when it is read."""
        if table in self._stored:
            return
        for column in self._connection.execute(f'pragma table_xinfo("{table}")'):
            if column[6] in _COMPUTED:
                raise _damaged(self._path, f"the column {str(column[1])[:40]!r} of {table} is computed, not stored")
        self._stored.add(table)

    # --- since version 0.36

    def _thread(self, thread: Row) -> Iterator[Told]:
        known: set[object] = set()
        is_first = True
        for turn in self._rows("turns", "where thread_id = ? order by id", thread.get("id")):
            if is_first:
                title = text_of(thread.get("name"))
                yield Head(text_of(thread.get("id")), time_of(turn.get("datetime_utc")), title and beginning(title))
                is_first = False
            yield from self._turn(turn, known)

    def _turn(self, turn: Row, known: set[object]) -> Iterator[Told]:
        begun, done = _times(turn)
        for message in self._chain(turn.get("parent_message_hash"), known):
            yield from self._input(message, begun)
        texts: list[str] = []
        calls: list[Call] = []
        for message in self._chain(turn.get("tip_message_hash"), known):
            for part in self._parts(message):
                kind = part.get("type")
                if kind == "tool_call":
                    calls.append(_call(_payload(part), len(calls)))
                elif kind == "text":
                    texts.append(self._text(part))
                else:
                    yield PassedOver(f"{str(kind)[:40]} of the model")
        yield _reply(turn, "\n\n".join(each for each in texts if each), tuple(calls), begun, done)

    def _chain(self, tip: object, known: set[object]) -> list[Row]:
        """The messages that lead to `tip` and are not known yet, oldest first; then they are."""
        chain: list[Row] = []
        while tip is not None and tip not in known and len(chain) < _LONGEST_CHAIN:
            known.add(tip)
            found = next(self._rows("messages", "where hash = ?", tip), None)
            if found is None:
                break
            chain.append(found)
            tip = found.get("parent_hash")
        return chain[::-1]

    def _input(self, message: Row, at: str | None) -> Iterator[Told]:
        role, texts = message.get("role"), []
        for part in self._parts(message):
            if part.get("type") == "tool_result":
                result = _payload(part)
                yield Resulted(text_of(result.get("tool_call_id")) or "", text_of(result.get("output")) or "", at)
            elif part.get("type") == "text" and role == "user":
                texts.append(self._text(part))
            else:
                yield PassedOver(f"{str(part.get('type'))[:40]} of the {str(role)[:40]}")
        if any(texts):
            yield Said("\n\n".join(each for each in texts if each), at, text_of(message.get("hash")))

    def _parts(self, message: Row) -> Iterator[Row]:
        return self._rows("parts", "where message_hash = ? order by position", message.get("hash"))

    def _text(self, part: Row) -> str:
        text = text_of(part.get("text"))
        if text is not None:
            return text
        rest = 'join fragments on fragments.id = fragment_id where part_id = ? order by "order"'
        return "\n\n".join(
            text_of(row.get("content")) or "" for row in self._rows("part_fragments", rest, part.get("id"))
        )

    # --- up to version 0.35

    def _responses(self) -> Iterator[Told]:
        carried = {row.get("id") for row in self._rows("turns")}
        names = {row.get("id"): text_of(row.get("name")) for row in self._rows("conversations")}
        current: object = object()
        for row in self._rows("responses", "order by coalesce(conversation_id, id), id"):
            if row.get("id") in carried:
                continue
            conversation = row.get("conversation_id") or row.get("id")
            if conversation != current:
                current = conversation
                title = names.get(conversation)
                yield Head(text_of(conversation), time_of(row.get("datetime_utc")), title and beginning(title))
            yield from self._response(row)

    def _response(self, row: Row) -> Iterator[Told]:
        begun, done = _times(row)
        for result in self._rows("tool_results", "where response_id = ? order by id", row.get("id")):
            output, error = text_of(result.get("output")) or "", text_of(result.get("exception"))
            yield Resulted(text_of(result.get("tool_call_id")) or "", error or output, begun, error is not None)
        if row.get("system"):
            yield PassedOver("text of the system")
        for _ in self._rows("prompt_attachments", "where response_id = ?", row.get("id")):
            yield PassedOver("attachment of the user")
        rest = 'join fragments on fragments.id = fragment_id where response_id = ? order by "order"'
        texts = [text_of(each.get("content")) for each in self._rows("prompt_fragments", rest, row.get("id"))]
        said = "\n\n".join(each for each in [*texts, text_of(row.get("prompt"))] if each)
        if said:
            yield Said(said, begun, text_of(row.get("id")))
        calls = self._rows("tool_calls", "where response_id = ? order by id", row.get("id"))
        asked = tuple(_call(call, number) for number, call in enumerate(calls))
        yield _reply(row, text_of(row.get("response")) or "", asked, begun, done)


def _reply(row: Row, text: str, calls: tuple[Call, ...], begun: str | None, done: str | None) -> Replied:
    counts = {"inputTokens": row.get("input_tokens"), "outputTokens": row.get("output_tokens")}
    usage: Doc = {name: count for name, count in counts.items() if type(count) is int}
    model, origin = text_of(row.get("resolved_model")) or text_of(row.get("model")), text_of(row.get("id"))
    return Replied(str(origin), text, calls, done, model, usage or None, "end_turn", begun, origin)


def _call(call: Row, number: int) -> Call:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else "{}"
    try:
        given: Doc | str = arguments if isinstance(arguments, dict) else decode(text.encode("utf-8", "replace"))
    except ValueError:
        given = text
    call_id = text_of(call.get("tool_call_id")) or f"call-{number + 1}"
    return Call(call_id, text_of(call.get("name")) or "unnamed", given)


def _payload(part: Row) -> Doc:
    try:
        return doc_of(decode(str(part.get("payload") or "{}").encode("utf-8", "replace")))
    except ValueError:
        return {}


def _times(row: Row) -> tuple[str | None, str | None]:
    """When the model was asked, and when it had answered."""
    begun, duration = time_of(row.get("datetime_utc")), row.get("duration_ms")
    if begun is None or type(duration) is not int or not 0 <= duration < 10**10:
        return begun, begun
    try:
        return begun, time_of((datetime.fromisoformat(begun) + timedelta(milliseconds=duration)).isoformat())
    except OverflowError:
        return begun, begun
