"""A new event's line is made of two parts, and is byte for byte what one encoding of all its fields gives.

Covers A12 and B8.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.errors import UsageError
from agentrun.records.codec import decode, encode_line
from agentrun.records.event import Event, beginning_of
from agentrun.states import EventType

TEXT = st.text() | st.sampled_from(["\ud800", "\udc80x", "\u2028", "\0", '"', "\\", "}"])
PAYLOADS = st.dictionaries(TEXT, st.none() | st.integers() | TEXT | st.lists(TEXT) | st.dictionaries(TEXT, TEXT))


@given(PAYLOADS, st.integers(1), st.sampled_from([*EventType]))
@settings(max_examples=50)
def test_a_line_is_what_encoding_all_fields_gives(payload: dict[str, object], seq: int, kind: EventType) -> None:
    event = Event("session-S1", "run-7", seq, kind.value, "2026-01-02T03:04:05.678Z", 3, payload)
    line = event.to_line(beginning_of("session-S1", "run-7"))
    assert line == encode_line(event.to_doc())
    assert decode(line)["seq"] == seq


@pytest.mark.parametrize("value", [math.nan, {1}, b"x", 10**5000], ids=["nan", "set", "bytes", "long"])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    event = Event("session-S1", "run-7", 1, "tool.finished", "2026-01-02T03:04:05.678Z", 3, {"result": [value]})
    with pytest.raises(UsageError, match="cannot be stored as JSON"):
        event.to_line(beginning_of("session-S1", "run-7"))
