"""Many lines at once give exactly the records that each line gives alone, or nothing at all.

Covers A12, A15, B8, promise 2.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.records.codec import Doc, decode, encode_line
from agentrun.records.event import Event
from agentrun.records.in_bulk import events_in, messages_in
from agentrun.records.message import Message
from agentrun.states import EventType

MESSAGE = {
    "seq": 7, "sessionId": "s.1", "runId": "run-1", "role": "user", "mode": "steer", "text": "go",
    "at": "2026-01-02T03:04:05.678Z", "key": None, "actor": {"user": "ann", "host": "tea", "pid": 4121},
}  # fmt: skip
EVENT = {
    "sessionId": "s.1", "runId": "run-1", "seq": 3, "type": "tool.started", "at": "2026-01-02T03:04:05.678Z",
    "generation": 1, "payload": {"operationId": "op-1", "attempt": 1},
}  # fmt: skip

# What a parser may see otherwise than a pattern does: raw pieces of JSON for any field.
ODD = [
    "null", "true", "0", "-1", "1.0", "1e3", "01", "1" * 19, "1" * 70, "9" * 5000, "NaN", "-Infinity", "1e999", '""',
    '"\\u0041"', '"\\""', '"\\\\"', '"\\\\\\""', '"a\\nb"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', '"\\u12"',
    '"a\tb"', '"a\0b"', '"a\x1fb"', '"\x7f"', '"\u2028\u0085\u2029"', '"é👩‍👧"', '"a\rb"', '"run-1"', '"run-0"',
    '"run-01"', '"run-١"', '"s.1"', '"sx1"', '"user"', '"User"', '"a"b"', '"abc', '"', '{}', '{"a":1', '{"a":"}"}',
    '{"a":{"b":[1]}}', '{"a":1,"a":2}', '{"messageSeq":"1"}', '{"usage":3}', "[1]", "[", "]", "},{", '","at":"2026Z"',
    '"x","role":"user"', "[" * 2000, '"\ufeff"', "", " ", '"\\u0000"', "false", '"run.finished"', '"my.event"',
]  # fmt: skip
KEPT = object()


def message(doc: Doc) -> Message:
    """As a session reads its lines."""
    made = Message.from_doc(doc)
    if made.session_id != "s.1":
        raise ValueError("another session's")
    return made


def event(doc: Doc) -> Event:
    """As a run reads its lines."""
    made = Event.from_doc(doc)
    if (made.session_id, made.run_id) != ("s.1", "run-1"):
        raise ValueError("another run's")
    return made


def raw_line(doc: Doc, changes: dict[str, str]) -> bytes:
    """The line of `doc` with the JSON text of some fields in place of their own."""
    fields = {name: json.dumps(value, separators=(",", ":")) for name, value in doc.items()} | changes
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}\n").encode("utf-8", "replace")


def lines_of(doc: Doc) -> st.SearchStrategy[bytes]:
    """Lines like `doc`: as agentrun writes them, with odd fields and more of them, with bytes changed and lost."""
    fields = st.sampled_from([*doc, "accept", "questionId", "more"])
    plain = st.builds(lambda seq: encode_line(doc | {"seq": seq}), st.integers(1, 10**18))
    odd = st.builds(raw_line, st.just(doc), st.dictionaries(fields, st.sampled_from(ODD), max_size=2))
    spliced = st.builds(
        lambda line, at, bytes_, lost: line[: at % len(line)] + bytes_ + line[at % len(line) + lost :] or b"\n",
        odd,
        st.integers(0, 400),
        st.sampled_from([b"", b'"', b"\\", b"\n", b"\xff", b"\xed\xa0\x80", b"}", b"\r", b"\0", b'\\"', b"x" * 30]),
        st.integers(0, 3),
    )
    return plain | odd | spliced


def one_by_one(lines: bytes, read: Callable[[Doc], object]) -> list[object] | None:
    """What the lines are, each alone; None if any of them is no record."""
    try:
        return [read(decode(line)) for line in lines.split(b"\n")[:-1]]
    except ValueError:
        return None


def shape(value: object) -> object:
    """To compare by: 1, 1.0 and True are equal in Python, and not the same."""
    return repr(value)


def check(lines: bytes, found: list[object] | None, expected: list[object] | None) -> None:
    # Not to be sure is always right; what it is sure of has to be so.
    if found is not None:
        assert shape(found) == shape(expected), lines
        assert {type(each) for each in found} <= {Message, Event}


@pytest.mark.slow
@given(st.lists(lines_of(MESSAGE), min_size=1, max_size=4), st.lists(lines_of(EVENT), min_size=1, max_size=4))
@settings(max_examples=250)
def test_many_lines_at_once_are_what_each_is_alone(messages: list[bytes], events: list[bytes]) -> None:
    for read_many, read, parts in (
        (lambda lines: messages_in(lines, "s.1", message), message, messages),
        (lambda lines: events_in(lines, "s.1", "run-1", event), event, events),
    ):
        lines = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts)
        check(lines, read_many(lines), one_by_one(lines, read))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", MESSAGE)
def test_every_odd_value_of_every_field_of_a_message(field: str) -> None:
    for odd in ODD:
        lines = encode_line(MESSAGE) + raw_line(MESSAGE, {field: odd}) + encode_line(MESSAGE)
        check(lines, messages_in(lines, "s.1", message), one_by_one(lines, message))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", EVENT)
def test_every_odd_value_of_every_field_of_an_event(field: str) -> None:
    for odd in ODD:
        lines = encode_line(EVENT) + raw_line(EVENT, {field: odd}) + encode_line(EVENT)
        check(lines, events_in(lines, "s.1", "run-1", event), one_by_one(lines, event))  # type: ignore[arg-type]


def test_lines_of_every_form_are_taken_together() -> None:
    """Whatever agentrun writes is certain: prompts, questions, keys, escapes, what other versions add."""
    texts = ["", "plain", 'quotes " and \\" and \\', "lines\nand\ttabs", "\u2028 é 👩‍👧", "\ud800", "ends with \\", '"']
    said = [MESSAGE | {"seq": seq, "text": text} for seq, text in enumerate(texts, 1)]
    said += [
        MESSAGE | {"accept": {"agent": None, "references": ["run-1"]}, "mode": "prompt"},
        MESSAGE | {"questionId": "q-1", "mode": "question", "role": "assistant"},
        MESSAGE | {"key": "k1"}, MESSAGE | {"key": ""}, MESSAGE | {"key": 'k"\\'}, MESSAGE | {"actor": None},
        MESSAGE | {"actor": {"user": "}", "more": {"deep": [1]}}}, MESSAGE | {"mode": None}, MESSAGE | {"new": 1},
    ]  # fmt: skip
    lines = b"".join(map(encode_line, said))
    assert messages_in(lines, "s.1", message) == one_by_one(lines, message) is not None
    happened = [
        EVENT | {"seq": seq, "type": kind.value, "payload": {"text": 'a "b" \\', "usage": {"executingMs": 1}}}
        for seq, kind in enumerate(EventType, 1)
    ]
    happened += [EVENT | {"type": "my.event", "payload": {"usage": 1}}, EVENT | {"generation": 0, "new": [None]}]
    lines = b"".join(map(encode_line, happened))
    assert events_in(lines, "s.1", "run-1", event) == one_by_one(lines, event) is not None


def test_a_text_that_is_cut_within_an_escape_takes_no_part_of_its_neighbours() -> None:
    """All texts of a piece go to the parser as one list, in which each has to end where its own quote is."""
    ends = [
        "",
        ",",
        "\\",
        "\\\\",
        '\\"',
        '\\\\"',
        '\\\\",',
        '\\\\","',
        ",\\",
        '",',
        "]",
        ',"',
        "\\n",
        "\\u12",
        "\\ud83d",
        "x",
    ]
    for first in ends:
        for second in ends:
            lines = b"".join(raw_line(MESSAGE, {"text": f'"{text}"'}) for text in ("a\\n", first, second, "b"))
            check(lines, messages_in(lines, "s.1", message), one_by_one(lines, message))  # type: ignore[arg-type]


def test_what_is_no_record_leaves_all_of_it_to_be_read_one_by_one() -> None:
    good = encode_line(MESSAGE)
    for bad in (b"\n", b"{}\n", b"\xff\n", b'{"seq":1\n', good.replace(b"s.1", b"sx1"), good.replace(b"go", b"g\to")):
        assert messages_in(good + bad + good, "s.1", message) is None, bad
        assert one_by_one(good + bad + good, message) is None, bad
