"""How what an agent reports stands in `operations.jsonl`: short outputs in the line, long ones in `blobs/`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

from agentrun.agent.events import AgentEvent, RequestFinished, ToolFinished, as_stored
from agentrun.records.codec import Doc
from agentrun.states import EventType

# More than this is kept in `blobs/`: a line should stay readable, and a model does not read much more anyway.
LINE_LIMIT = 32 * 1024


def line_of(event: AgentEvent, store_blob: Callable[[BinaryIO], Doc]) -> tuple[EventType, Doc]:
    """Type and whole payload of the line that `event` becomes; a long or binary output goes through `store_blob`."""
    kind, payload = as_stored(event)
    match event:
        case RequestFinished():
            return kind, payload | {"text": event.text}
        case ToolFinished():
            return kind, payload | _output(event.output, event.shown, store_blob)
        case _:
            return kind, payload


def _output(output: BinaryIO | bytes, instead: str | None, store_blob: Callable[[BinaryIO], Doc]) -> Doc:
    """`result` as text; with `blob` where the whole is longer than a line, is not text, or has a text `instead`."""
    source = io.BytesIO(output) if isinstance(output, bytes) else output
    source.seek(0)
    beginning = source.read(LINE_LIMIT + 1)
    try:
        if len(beginning) <= LINE_LIMIT and instead is None:
            return {"result": beginning.decode("utf-8")}
    except UnicodeDecodeError:
        pass
    source.seek(0)
    blob = store_blob(source)
    shown = beginning[:LINE_LIMIT].decode("utf-8", "replace") if instead is None else instead[:LINE_LIMIT]
    note = f"[{blob['bytes']} bytes, kept in blobs/{blob['sha256']}]"
    return {"result": f"{shown}\n{note}", "blob": blob}
