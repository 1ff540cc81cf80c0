"""What a request cost, where that is known: a price that nobody knows is not zero."""

from __future__ import annotations

import pytest

from agentrun.adapters.models import prices
from agentrun.adapters.models.prices import with_cost

USAGE = {"inputTokens": 1_000_000, "outputTokens": 1_000_000}


def test_a_known_price_is_that_of_the_provider_at_that_address() -> None:
    pytest.importorskip("genai_prices", reason="the extra 'prices' is not installed")
    by_provider = with_cost(USAGE, "gpt-4o", provider="openai", base_url=None)
    assert by_provider
    assert by_provider["costUsd"] > 0
    assert by_provider | {"costUsd": 0} == USAGE | {"costUsd": 0}
    assert with_cost(USAGE, "gpt-4o", provider=None, base_url="https://api.openai.com/v1") == by_provider
    # Somebody's own server may call its model anything.
    assert with_cost(USAGE, "gpt-4o", provider=None, base_url="http://127.0.0.1:8080/v1") == USAGE | {"costUsd": None}
    assert with_cost(USAGE, "no-such-model", provider="openai", base_url=None) == USAGE | {"costUsd": None}
    cached = with_cost(USAGE | {"cacheReadTokens": 900_000}, "gpt-4o", provider="openai", base_url=None)
    assert cached
    assert cached["costUsd"] < by_provider["costUsd"]


def test_without_the_table_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices.importlib.util, "find_spec", lambda name: None)
    assert with_cost(USAGE, "gpt-4o", provider="openai", base_url=None) == USAGE | {"costUsd": None}


def test_what_was_not_counted_has_no_cost() -> None:
    assert with_cost(None, "gpt-4o", provider="openai", base_url=None) is None
