"""What a run has used, counted from its events."""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.fields import MOST_COUNT, is_count
from agentrun.records.operation import CHECK, Operation
from agentrun.states import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

E = EventType

# What is told in numbers: of tokens, and in dollars.
_COST = "costUsd"
_TOLD = frozenset({"inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", _COST})
_COUNTED = frozenset({E.MODEL_REQUEST_STARTED, E.MODEL_REQUEST_FINISHED, E.TOOL_STARTED})


def told_usage(usage: Doc | None) -> Doc | None:
    """What a model or an agent says that it used, as far as a record can hold it: what is no count is not known.

    A server that counts wrong, or wants harm, would otherwise have a line written that nobody can read.
    """
    if not isinstance(usage, dict):
        return None
    return {name: value if _may_be_told(name, value) else None for name, value in usage.items()}


def _may_be_told(name: str, value: object) -> bool:
    if name == _COST and type(value) is float:
        return 0 <= value <= MOST_COUNT
    return name not in _TOLD or (is_count(value) and value >= 0)


def after_executing(usage: Doc, event: Event) -> Doc:
    """`usage` after an event that ends a stretch."""
    return _counted(usage, executingMs=event.payload.get("executingMs"))


def after_operation(usage: Doc, event: Event, known: Operation | None) -> Doc:
    """`usage` after an event of the operation `known`."""
    if event.type not in _COUNTED:
        return usage
    payload = event.payload
    first = payload.get("attempt", 1) == 1
    match event.type:
        case E.MODEL_REQUEST_STARTED:
            # A request for a summary belongs to no turn, and says so.
            is_summary = "turnId" in payload and payload["turnId"] is None
            return _counted(usage, modelRequests=1, turns=int(first and not is_summary), retries=int(not first))
        case E.TOOL_STARTED if known and known.kind == CHECK:
            return _counted(usage, checks=1)
        case E.TOOL_STARTED:
            return _counted(usage, toolCalls=int(first), retries=int(not first))
        case E.MODEL_REQUEST_FINISHED:
            told: Any = payload.get("usage") or {}
            counted = _counted(usage, inputTokens=told.get("inputTokens"), outputTokens=told.get("outputTokens"))
            return _with_cost(counted, told.get("costUsd"))
        case _:
            return usage


def _counted(usage: Doc, **more: int | None) -> Doc:
    counted = dict(usage)
    for name, number in more.items():
        if isinstance(number, int):
            # A sum that no record can hold stays at the largest that one can.
            counted[name] = min((counted[name] or 0) + number, MOST_COUNT)
    return counted


def _with_cost(usage: Doc, cost: object) -> Doc:
    """`usage` with the dollars of one more request; where its price is not known, the sum stays what it was."""
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return usage
    # Rounded, so that every reader of the same events writes the same digits.
    return usage | {"costUsd": min(round((usage["costUsd"] or 0) + cost, 9), MOST_COUNT)}
