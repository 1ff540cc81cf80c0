"""What was used is written so that everybody can read it, whatever a server or an agent says it was."""

from __future__ import annotations

import pytest

from agentrun.records.fields import MOST_COUNT, PAYLOAD, RUN, wrong_field
from agentrun.records.run import NO_USAGE
from agentrun.records.usage import _counted, _with_cost, told_usage

NAMES = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "costUsd")


@pytest.mark.parametrize(
    "told", [-1, True, "7", [7], {"a": 7}, 10**400, 2**53, float("nan"), float("inf"), -0.5, 1e300]
)
def test_what_is_no_amount_is_not_known(told: object) -> None:
    # covers promises 2, 13
    for name in NAMES:
        usage = told_usage({name: told, "other": told})
        assert usage == {name: None, "other": told}
        assert wrong_field({"usage": usage}, PAYLOAD) is None


def test_what_is_an_amount_stays() -> None:
    assert told_usage({"inputTokens": 7.5, "costUsd": 7.5}) == {"inputTokens": None, "costUsd": 7.5}
    told = {"inputTokens": MOST_COUNT, "outputTokens": 0, "costUsd": 0.25}
    assert told_usage(told) == told
    assert told_usage(None) is None
    assert told_usage([7]) is None  # type: ignore[arg-type]


def test_a_sum_of_amounts_is_one_that_a_record_can_hold() -> None:
    # covers promises 2, 13
    usage = NO_USAGE
    for _ in range(3):
        usage = _with_cost(_counted(usage, inputTokens=MOST_COUNT, outputTokens=1), float(MOST_COUNT))
    assert usage["inputTokens"] == usage["costUsd"] == MOST_COUNT
    assert usage["outputTokens"] == 3
    assert wrong_field({"usage": usage}, RUN) is None
