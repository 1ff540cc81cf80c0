"""What a model request cost, where that is known.

The prices are those of the package `genai-prices` (extra `prices`), a table that comes with it: nothing is
looked up on a network. Without it, or for a model that it does not list, the cost is unknown, which is not zero.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from agentrun.adapters.extras import load_extra
from agentrun.records.codec import Doc


def with_cost(usage: Doc | None, model: str, *, provider: str | None, base_url: str | None) -> Doc | None:
    """`usage` with `costUsd`: dollars, or None where the price is not known."""
    if usage is None:
        return None
    return usage | {"costUsd": _cost(usage, model, provider, base_url)}


def _cost(usage: Doc, model: str, provider: str | None, base_url: str | None) -> float | None:
    if importlib.util.find_spec("genai_prices") is None:
        return None
    prices: Any = load_extra("prices", "genai_prices")
    used = prices.Usage(
        input_tokens=usage.get("inputTokens"),
        output_tokens=usage.get("outputTokens"),
        cache_read_tokens=usage.get("cacheReadTokens"),
        cache_write_tokens=usage.get("cacheWriteTokens"),
    )
    # An address that the table does not know is somebody's own server: its prices are nobody's business but theirs.
    where = {"provider_api_url": base_url} if base_url else {"provider_id": provider}
    try:
        return round(float(prices.calc_price(used, model, **where).total_price), 9)
    except (LookupError, ValueError):
        return None
