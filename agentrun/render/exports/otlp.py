"""OpenTelemetry traces as OTLP/JSON: each run is a trace, with a span for itself, each model request and each call.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids in hexadecimal, 64-bit numbers as text, enums as
numbers. The attributes are those of the semantic conventions for generative AI, which are still in development; the
schema's version says which. Ids follow from the account, the session and the run, so that sending an export a second
time doubles nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from agentrun import __version__
from agentrun.records.codec import Doc, encode_line
from agentrun.records.exported import Export, ExportedCall, ExportedRun, ExportedTurn, RunOver, Said
from agentrun.records.operation import Operation
from agentrun.records.run import Run
from agentrun.render.exports.pieces import compact, head, quoted
from agentrun.render.times import moment
from agentrun.states import OperationStatus, RunStatus

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_FINISH_REASONS = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter"}
_ENDED_WELL = (OperationStatus.SUCCEEDED.value, RunStatus.COMPLETED.value)


def write(export: Export) -> Iterator[bytes]:
    """A `TracesData` document with the spans of all runs; the span of a run comes after those in it."""
    resource: Doc = {"attributes": _attributes({"service.name": "agentrun", "service.version": __version__})}
    scope: Doc = {"name": "agentrun", "version": __version__}
    yield b'{"resourceSpans":[' + head({"resource": resource}) + b',"scopeSpans":['
    yield head({"scope": scope, "schemaUrl": SCHEMA}) + b',"spans":'
    separator = b"[\n"
    for run in export.runs():
        trace = _Trace(run)
        for span in trace.spans():
            yield separator + compact(span)
            separator = b",\n"
        yield separator
        yield from trace.whole()
        separator = b",\n"
    yield b"[]" if separator == b"[\n" else b"\n]"
    yield b"}]," + compact({"schemaUrl": SCHEMA})[1:] + b"]}\n"


def trace_id(account: str, session_id: str, run_id: str) -> str:
    """The id of a run's trace: 32 hexadecimal digits."""
    return _digest(account, session_id, run_id, "trace")[:32]


def span_id(account: str, session_id: str, run_id: str, operation_id: str = "run") -> str:
    """The id of the span of a run, or of one of its operations: 16 hexadecimal digits."""
    return _digest(account, session_id, run_id, operation_id)[:16]


def _digest(*names: str) -> str:
    # No name has a slash in it but a tool's own, which comes last.
    return hashlib.sha256("/".join(names).encode("utf-8", "backslashreplace")).hexdigest()


class _Trace:
    """The spans of one run: first all that are in it, then its own."""

    def __init__(self, exported: ExportedRun) -> None:
        self._steps = exported.steps
        self._run = exported.view.run
        self._status = exported.view.status.value
        self._has_inputs = False
        self._report: str | None = None
        self._latest = 0

    def spans(self) -> Iterator[Doc]:
        for step in self._steps():
            match step:
                case Said():
                    self._has_inputs = self._has_inputs or _is_input(step)
                case ExportedTurn():
                    yield from self._turn(step)
                case RunOver():
                    self._report = step.report or self._report

    def _turn(self, turn: ExportedTurn) -> Iterator[Doc]:
        if turn.is_report:
            self._report = turn.text
        if turn.request is not None:
            yield self._request(turn, turn.request)
        for call in turn.calls:
            if call.operation is not None:
                yield self._call(call, call.operation)
        for check in turn.checks:
            yield self._operation(check, f"check {check.name}", _INTERNAL, {"gen_ai.operation.name": "check"})

    def _request(self, turn: ExportedTurn, request: Operation) -> Doc:
        provider, colon, model = request.name.partition(":")
        usage = turn.usage or {}
        facts: Doc = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider if colon else "_OTHER",
            "gen_ai.request.model": model if colon else request.name,
            "gen_ai.usage.input_tokens": usage.get("inputTokens"),
            "gen_ai.usage.output_tokens": usage.get("outputTokens"),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cacheReadTokens"),
            "agentrun.cost_usd": usage.get("costUsd"),
            "agentrun.turn.id": turn.turn_id,
        }
        if turn.text is not None:
            reason = "tool_call" if turn.calls else _FINISH_REASONS.get(str(turn.stop_reason), "stop")
            facts["gen_ai.response.finish_reasons"] = [reason]
            facts["gen_ai.output.messages"] = _json([_reply(turn, reason)])
        return self._operation(request, f"chat {facts['gen_ai.request.model']}", _CLIENT, facts)

    def _call(self, call: ExportedCall, operation: Operation) -> Doc:
        facts: Doc = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": operation.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.call.arguments": call.arguments if isinstance(call.arguments, str) else _json(call.arguments),
            "gen_ai.tool.call.result": call.told if operation.status is OperationStatus.SUCCEEDED else None,
            "agentrun.operation.effect": operation.effect,
            "agentrun.operation.unresolved": operation.is_unresolved or None,
            "agentrun.remote.id": operation.remote_id,
        }
        return self._operation(operation, f"execute_tool {operation.name}", _INTERNAL, facts)

    def _operation(self, operation: Operation, name: str, kind: int, facts: Doc) -> Doc:
        facts |= {"agentrun.operation.id": operation.operation_id, "agentrun.operation.status": operation.status.value}
        facts |= {"agentrun.operation.attempts": operation.attempt}
        facts |= {"error.type": operation.status.value} if _is_bad(operation.status.value) else {}
        start = _nanoseconds(operation.started_at or operation.registered_at) or _nanoseconds(self._run.created_at)
        # Clocks jump; a span that ends before it begins is refused by some.
        end = max(_nanoseconds(operation.finished_at), start)
        self._latest = max(self._latest, end)
        span = self._span(self._span_id(operation.operation_id), name, kind, (start, end), facts)
        return span | {"parentSpanId": self._span_id()} | _status(operation.status.value, operation.error)

    def whole(self) -> Iterator[bytes]:
        """The span of the run, in pieces: everything that was said to it is one attribute, the last of all."""
        run = self._run
        facts: Doc = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": run.agent,
            "gen_ai.usage.input_tokens": run.usage.get("inputTokens"),
            "gen_ai.usage.output_tokens": run.usage.get("outputTokens"),
            "agentrun.cost_usd": run.usage.get("costUsd"),
            "agentrun.run.status": self._status,
            "error.type": self._status if run.is_over and _is_bad(self._status) else None,
        }
        if self._report is not None:
            output = {"role": "assistant", "parts": [_text(self._report)], "finish_reason": "stop"}
            facts["gen_ai.output.messages"] = _json([output])
        start = _nanoseconds(run.created_at)
        end = max(_nanoseconds(run.terminal_at or run.updated_at), self._latest, start)
        name = f"invoke_agent {run.agent or ''}".rstrip()
        span = self._span(self._span_id(), name, _INTERNAL, (start, end), facts)
        attributes = span.pop("attributes")
        span |= _links(run) | (_status(self._status, run.reason) if run.is_over else {})
        yield head(span) + b',"attributes":[' + b",".join(map(compact, attributes))
        if self._has_inputs:
            yield b',{"key":"gen_ai.input.messages","value":{"stringValue":'
            yield from quoted(self._inputs())
            yield b"}}"
        yield b"]}"

    def _inputs(self) -> Iterator[str]:
        """A JSON array of what the user said, in the order in which the run was told it."""
        separator = "["
        for step in self._steps():
            if isinstance(step, Said) and _is_input(step):
                yield separator + _json({"role": "user", "parts": [_text(step.told)]})
                separator = ","
        yield "]"

    def _span(self, own: str, name: str, kind: int, lasted: tuple[int, int], facts: Doc) -> Doc:
        run = self._run
        known = {
            "gen_ai.conversation.id": run.session_id,
            "agentrun.run.id": run.run_id,
            "agentrun.account.id": run.account_id,
        }
        return {
            "traceId": trace_id(run.account_id, run.session_id, run.run_id),
            "spanId": own,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(lasted[0]),
            "endTimeUnixNano": str(lasted[1]),
            "attributes": _attributes(facts | known),
        }

    def _span_id(self, operation_id: str = "run") -> str:
        return span_id(self._run.account_id, self._run.session_id, self._run.run_id, operation_id)


def _is_input(said: Said) -> bool:
    return said.message.is_input and not said.is_permission


def _links(run: Run) -> Doc:
    """To the call of another run that began this one."""
    parent = run.parent_run or {}
    names = [str(parent.get(name) or "") for name in ("sessionId", "runId", "operationId")]
    if not all(names):
        return {}
    session_id, run_id, operation_id = names
    trace = trace_id(run.account_id, session_id, run_id)
    link: Doc = {"traceId": trace, "spanId": span_id(run.account_id, session_id, run_id, operation_id)}
    return {"links": [link]}


def _status(status: str, error: str | None) -> Doc:
    return {"status": {"code": _ERROR, "message": error or status}} if _is_bad(status) else {}


def _is_bad(status: str) -> bool:
    """Anything but a good end is an error, of a type that is our word for it; what goes on is neither."""
    return status not in (*_ENDED_WELL, OperationStatus.PENDING.value, OperationStatus.RUNNING.value)


def _reply(turn: ExportedTurn, reason: str) -> Doc:
    text = "\n\n".join(part for part in (turn.text, turn.question) if part)
    parts: list[Doc] = [_text(text)] if text else []
    for call in turn.calls:
        parts.append({"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments})
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _text(text: str) -> Doc:
    return {"type": "text", "content": text}


def _json(value: Doc | list[Doc]) -> str:
    """`value` as JSON in a text: attributes of spans with structure are not understood everywhere yet."""
    if isinstance(value, dict):
        return encode_line(value).decode("utf-8").rstrip("\n")
    return "[" + ",".join(_json(each) for each in value) + "]"


def _attributes(facts: Doc) -> list[Doc]:
    return [{"key": name, "value": _value(value)} for name, value in facts.items() if value is not None]


def _value(value: object) -> Doc:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _nanoseconds(at: str | None) -> int:
    seconds = moment(at)
    return 0 if seconds is None else round(seconds * 1000) * 1_000_000
