"""One event as lines that stay: what it means to a person, or nothing if it means nothing to one.

Each function returns lines without newlines.
"""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.operation import Operation
from agentrun.render.safe import excerpt
from agentrun.render.theme import NOTE, Screen, Span, Style, line, marked
from agentrun.render.times import duration
from agentrun.render.transcript import block, operation_head, operation_lines
from agentrun.states import EventType, OperationStatus

E = EventType


def happened(event: Event, operation: Operation | None, screen: Screen) -> list[str]:
    """What `event` adds to the record; `operation` is what it names, as it stands after the event."""
    match event.type:
        case E.MODEL_REQUEST_FINISHED | E.TOOL_FINISHED if operation:
            return _finished(event, operation, screen)
        case E.TOOL_STARTED if operation and not screen.interactive:
            # Without a region nothing else would show that it runs.
            return [operation_head(operation, screen)]
        case E.TOOL_PROGRESS:
            return [_progress(event, screen)]
        case E.OPERATION_RECONCILED | E.OPERATION_LATE_RESULT if operation:
            return [operation_head(operation, screen), *_evidence(event, screen)]
        case E.OPERATION_CANCEL_REQUESTED if operation and operation.is_open:
            reason = f": {event.payload['reason']}" if event.payload.get("reason") else ""
            who = _who(event.payload.get("actor"))
            return [
                note(f"{operation.operation_id}  {operation.name}  to be cancelled, asked by {who}{reason}", screen)
            ]
        case _:
            text = _meaning(event)
            return [note(text, screen)] if text else []


def is_final_reply(event: Event) -> bool:
    """Whether this reply asks for nothing more: it becomes the report, unless something comes between."""
    payload = event.payload
    return (
        event.type == E.MODEL_REQUEST_FINISHED
        and payload.get("status") == OperationStatus.SUCCEEDED
        and not payload.get("toolCalls")
        and not payload.get("question")
    )


def reply_text(operation: Operation, screen: Screen) -> list[str]:
    """What the model said, in full."""
    return block(operation.result, screen) if operation.result else []


def note(text: str, screen: Screen) -> str:
    """A line that stands out."""
    safe = excerpt(text, screen.width - 2, unicode=screen.unicode)
    return line([marked(NOTE, screen), Span(f" {safe}", Style.CARE)], screen)


def _finished(event: Event, operation: Operation, screen: Screen) -> list[str]:
    if not event.payload.get("willRetry"):
        return operation_lines(operation, screen, reply=not is_final_reply(event))
    error = operation.error or "no reason given"
    attempt = event.payload.get("attempt", operation.attempt)
    pause = event.payload.get("pauseMs")
    after = f" after {duration(pause / 1000)}" if isinstance(pause, int) else ""
    text = f"{operation.operation_id}  {operation.name}  attempt {attempt} failed, tried again{after}: {error}"
    return [note(text, screen)]


def _progress(event: Event, screen: Screen) -> str:
    text = f"{event.payload.get('operationId')}  {event.payload.get('text')}"
    return line([Span(f"  {excerpt(text, max(screen.width - 2, 1), unicode=screen.unicode)}", Style.DIM)], screen)


def _evidence(event: Event, screen: Screen) -> list[str]:
    evidence = event.payload.get("evidence")
    if not evidence:
        return []
    safe = excerpt(str(evidence), max(screen.width - 14, 1), unicode=screen.unicode)
    return [line([Span(f"    evidence: {safe}", Style.DIM)], screen)]


def _meaning(event: Event) -> str:
    payload = event.payload
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    match event.type:
        case E.RUN_LEASE_ACQUIRED if payload.get("attempt", 1) != 1:
            return f"taken up again by {_who(payload.get('owner'))}, attempt {payload['attempt']}"
        case E.RUN_CANCEL_REQUESTED if payload.get("intent") == "timeout":
            return f"its time is over{reason}"
        case E.RUN_CANCEL_REQUESTED:
            return f"stop asked by {_who(payload.get('actor'))}{reason}"
        case E.RUN_FAILING:
            return f"failing{reason}"
        case E.RUN_RECONCILING:
            return f"its executor is gone{reason}"
        case E.RUN_COMPACTED if payload.get("error"):
            return f"history not summarised: {payload['error']}"
        case E.RUN_COMPACTED:
            return "history summarised"
        case _:
            return ""


def _who(actor: Doc | None) -> str:
    if not isinstance(actor, dict) or not actor.get("user"):
        return "somebody"
    return f"{actor['user']}@{actor.get('host')}"
