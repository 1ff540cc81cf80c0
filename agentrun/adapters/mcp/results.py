"""What a server answers, as the outcome of a call: kept whole, and shown to the model as text."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from agentrun.agent.protocols import ToolOutcome
from agentrun.states import OperationStatus as Status

# Characters of an error that go into the record of a call; the whole is in its output.
ERROR_SHOWN = 2000


class _Part(NamedTuple):
    """A piece of an answer: text, or bytes with what the model is told in their place."""

    text: str
    content: bytes | None = None


def outcome_of(result: Any) -> ToolOutcome:
    """The outcome that a `CallToolResult` is.

    Text is the output. An answer that is one binary is kept as those bytes; one that mixes both is kept as the JSON
    that the server sent, and the model sees the text with a word on each binary.
    """
    parts = [_part(block) for block in result.content]
    text = "\n".join(part.text for part in parts)
    binaries = [part.content for part in parts if part.content is not None]
    if not parts and result.structured_content is not None:
        output, shown = _json(result.structured_content), None
    elif not binaries:
        output, shown = text.encode("utf-8", "replace"), None
    elif len(parts) == 1:
        output, shown = binaries[0], text
    else:
        output, shown = result.model_dump_json(by_alias=True, exclude_none=True).encode("utf-8", "replace"), text
    if result.is_error:
        return ToolOutcome(Status.FAILED, output, error=text[:ERROR_SHOWN] or "it says that it has failed", shown=shown)
    return ToolOutcome(Status.SUCCEEDED, output, shown=shown)


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _part(block: Any) -> _Part:
    match block.type:
        case "text":
            return _Part(block.text)
        case "image" | "audio":
            return _binary(block.mime_type, block.data)
        case "resource_link":
            return _Part(f"[{block.name}: {block.uri}]")
        case "resource" if hasattr(block.resource, "text"):
            return _Part(block.resource.text)
        case "resource":
            return _binary(block.resource.mime_type or str(block.resource.uri), block.resource.blob)
        case _:
            return _Part(f"[{block.type}]")


def _binary(kind: str, encoded: str) -> _Part:
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return _Part(f"[{kind}, which cannot be decoded]", encoded.encode("utf-8", "replace"))
    return _Part(f"[{kind}, {len(content)} bytes]", content)
