"""How times read."""

import pytest

from agentrun.render.times import age, between, duration, moment, running_time


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0.0s"), (0.34, "0.3s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m 00s"),
        (123, "2m 03s"), (3599.7, "1h 00m"), (3900, "1h 05m"), (86400 * 3 + 3600 * 4, "3d 4h"),
    ],
)  # fmt: skip
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-86400, "now"), (0.4, "now"), (3.9, "3s"), (250, "4m"), (7300, "2h"), (86400 * 400, "400d")],
)
def test_an_age_is_one_number_and_never_negative(seconds: float, expected: str) -> None:
    assert age(seconds) == expected


def test_what_counts_is_told_in_whole_seconds() -> None:
    assert [running_time(each) for each in (-1, 0.9, 3.9, 61)] == ["0s", "0s", "3s", "1m 01s"]


def test_a_damaged_time_is_no_time() -> None:
    assert moment("yesterday") is None
    assert moment(None) is None
    assert between("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:04.000Z") == 0.0
    assert between("2026-01-02T03:04:05.000Z", None) is None
