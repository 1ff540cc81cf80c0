"""A set of many texts in little room."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.records import seen
from agentrun.records.seen import Seen


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_it_has_what_was_put_in_and_nothing_else(texts: list[str], others: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # So small that it grows, and that texts stand in each other's places.
        patch.setattr(seen, "_FIRST", 2)
        found = Seen(texts)
        for text in texts:
            found.add(text)
    assert len(found) == len(set(texts))
    assert [text in found for text in (*texts, *others)] == [text in texts for text in (*texts, *others)]


def test_it_takes_a_few_bytes_for_each() -> None:
    tracemalloc.start()
    try:
        found = Seen(f"session-{number}" for number in range(20_000))
        assert tracemalloc.get_traced_memory()[0] < 16 * 20_000 + 10_000
    finally:
        tracemalloc.stop()
    assert "session-19999" in found
    assert "session-20000" not in found
