"""What has no end is read to a bound, and no further. Covers promise 16."""

import io

import pytest

from agentrun import pieces
from agentrun.pieces import read_to


@pytest.mark.parametrize(("length", "is_too_much"), [(0, False), (1, False), (9, False), (10, False), (11, True)])
def test_all_of_it_or_nothing(monkeypatch: pytest.MonkeyPatch, length: int, is_too_much: bool) -> None:
    monkeypatch.setattr(pieces, "PIECE", 3)
    content = bytes(range(length))
    assert read_to(10, io.BytesIO(content).read) == (None if is_too_much else content)


def test_what_has_no_end_is_asked_for_little_more_than_is_taken() -> None:
    asked = []

    def endless(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    assert read_to(10 * pieces.PIECE, endless) is None
    assert asked == [pieces.PIECE] * 11
