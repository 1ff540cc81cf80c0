"""Times: RFC 3339 in UTC with milliseconds, read back as what they were, and two clocks that only go forwards.

Covers B42, B46 and case C19.
"""

import re
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun import clock

FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Until the end of the year 9999, the last that RFC 3339 can write.
SECONDS = st.floats(0, 253402300799, allow_nan=False)


@given(SECONDS)
def test_a_time_is_written_in_one_form_and_read_back(seconds: float) -> None:
    text = clock.timestamp(seconds)
    assert FORM.fullmatch(text)
    assert abs(clock.seconds_of(text) - seconds) < 0.0011


@given(SECONDS, SECONDS)
def test_texts_sort_like_the_times(one: float, other: float) -> None:
    if one <= other:
        assert clock.timestamp(one) <= clock.timestamp(other)


@pytest.mark.parametrize("seconds", [1e12, 1e18, 1e300, float("inf")])
def test_a_time_that_cannot_be_written_is_the_last_one_that_can(seconds: float) -> None:
    assert clock.timestamp(seconds) == "9999-12-31T23:59:59.000Z"


def test_now_is_now() -> None:
    before = time.time()
    text = clock.timestamp()
    assert before - 0.002 <= clock.seconds_of(text) <= time.time()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York", "Pacific/Kiritimati"])
def test_the_zone_of_the_machine_does_not_show(zone: str) -> None:
    code = "from agentrun import clock; t = clock.timestamp(1700000000.25); print(t, clock.seconds_of(t))"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env={"TZ": zone}, capture_output=True, text=True, check=True)
    assert done.stdout == "2023-11-14T22:13:20.250Z 1700000000.25\n"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05.678Z", datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        ("2026-01-02T05:04:05+02:00", datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
    ],
)
def test_times_that_others_wrote_are_read(text: str, moment: datetime) -> None:
    assert clock.seconds_of(text) == moment.timestamp()


@pytest.mark.parametrize("text", ["", "now", "2026", "2026-13-01T00:00:00Z", "None", "2026-01-02T03:04:05Zz", "\0"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are Python's
        clock.seconds_of(text)


def test_the_clocks_of_leases_go_forwards_and_the_boot_clock_counts_sleep() -> None:
    assert clock.boot_seconds() <= clock.boot_seconds()
    assert clock.awake_seconds() <= clock.awake_seconds()
    awake = clock.awake_seconds()
    assert clock.boot_seconds() >= awake
