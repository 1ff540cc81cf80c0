"""A tool call as the protocol has it, as ours."""

from __future__ import annotations

import json
from typing import Any

from agentrun.adapters.agents.activity import Call
from agentrun.records.codec import Doc
from agentrun.records.operation import READ, WRITE
from agentrun.states import OperationStatus as Status

# Kinds of calls that change nothing, by the protocol's own words for them ("Tool Calls", version 1). A command that is
# executed may do anything, and so may what has no kind.
_READING = ("read", "search", "think", "fetch")
NAME_LENGTH = 80


def call_of(call_id: str, merged: Doc) -> Call:
    """The call, of which `merged` is all that is known."""
    title = str(merged.get("title") or merged.get("kind") or "tool").strip().split("\n")[0]
    arguments = merged.get("rawInput")
    effect = READ if merged.get("kind") in _READING else WRITE
    return Call(call_id, title[:NAME_LENGTH] or "tool", arguments if isinstance(arguments, dict) else {}, effect)


def is_over(merged: Doc) -> bool:
    """Whether the agent has said how it ended."""
    return merged.get("status") in ("completed", "failed")


def outcome_of(merged: Doc) -> tuple[Status, bytes, str | None]:
    """How it ended: status, output, error."""
    content = merged.get("content")
    text = "\n".join(filter(None, map(_text, content if isinstance(content, list) else ()))) or _raw(
        merged.get("rawOutput")
    )
    output = text.encode("utf-8", "replace")
    if merged.get("status") == "completed":
        return Status.SUCCEEDED, output, None
    return Status.FAILED, output, text[:2000] or "it says that it has failed"


def _text(part: Any) -> str:
    if not isinstance(part, dict):
        return ""
    match part.get("type"):
        case "content":
            content = part.get("content")
            return str(content.get("text") or f"[{content.get('type')}]") if isinstance(content, dict) else ""
        case "diff":
            return f"[changes {part.get('path')}]"
        case kind:
            return f"[{kind}]"


def _raw(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
