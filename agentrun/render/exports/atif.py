"""The Agent Trajectory Interchange Format of the Harbor framework, version 1.7: one document a session or run.

https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md: steps are numbered from 1, a step
of the agent is one model request with its calls, and each call has a result under `observation`. What the format has no
field for (whether a call was stopped, skipped, or may have had effects) stands in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun import __version__
from agentrun.records.codec import Doc
from agentrun.records.exported import Export, ExportedCall, ExportedTurn, RunOver, Said
from agentrun.records.message import COMPACT, QUESTION
from agentrun.records.operation import Operation
from agentrun.render.exports.pieces import array, compact, head

VERSION = "ATIF-v1.7"
_SOURCES = {"user": "user", "assistant": "agent", "system": "system"}
# Ours, theirs of a step, theirs of the whole.
_METRICS = (
    ("inputTokens", "prompt_tokens", "total_prompt_tokens"),
    ("outputTokens", "completion_tokens", "total_completion_tokens"),
    ("cacheReadTokens", "cached_tokens", "total_cached_tokens"),
    ("costUsd", "cost_usd", "total_cost_usd"),
)


def write(export: Export) -> Iterator[bytes]:
    """The document, a step at a time; the totals come last."""
    session = export.session
    name = f"{session.session_id}/{export.run_id}" if export.run_id else session.session_id
    about: Doc = {"schema_version": VERSION, "session_id": session.session_id, "trajectory_id": name}
    agent: Doc = {"name": "agentrun", "version": __version__}
    if session.agent:
        agent["extra"] = {"agent": session.agent}
    steps = _Steps()
    yield head(about | {"agent": agent, "extra": {"title": session.title}}) + b',\n"steps":'
    yield from array(steps.of(export))
    yield b"," + compact({"final_metrics": steps.totals()})[1:] + b"\n"


class _Steps:
    """Numbers the steps and adds up what they used."""

    def __init__(self) -> None:
        self._count = 0
        self._totals: Doc = {}

    def of(self, export: Export) -> Iterator[Doc]:
        for said in export.copied():
            yield from self._said(said, is_copied=True)
        for run in export.runs():
            for step in run.steps():
                match step:
                    case Said():
                        yield from self._said(step)
                    case ExportedTurn():
                        yield self._turn(step)
                    case RunOver():
                        yield from self._over(step)

    def totals(self) -> Doc:
        return self._totals | {"total_steps": self._count}

    def _numbered(self, source: str, message: str, at: str | None, **more: object) -> Doc:
        self._count += 1
        step: Doc = {"step_id": self._count, "source": source, "message": message}
        return step | ({"timestamp": at} if at else {}) | {name: value for name, value in more.items() if value}

    def _said(self, said: Said, *, is_copied: bool = False) -> Iterator[Doc]:
        message = said.message
        if message.mode == COMPACT or (message.mode == QUESTION and not (said.is_permission or is_copied)):
            return  # the reply that asks a question has it
        extra: Doc = {"run_id": said.run, "mode": message.mode, "message_seq": message.seq}
        extra |= {"not_delivered": said.left} if said.left else {}
        # A question whether a call may be made is agentrun's, not the agent's.
        source = "system" if said.is_permission and message.role != "user" else _SOURCES[message.role]
        yield self._numbered(source, said.told, message.at, is_copied_context=is_copied, extra=extra)

    def _turn(self, turn: ExportedTurn) -> Doc:
        request = turn.request
        text = "\n\n".join(part for part in (turn.text, turn.question) if part)
        extra: Doc = {"run_id": turn.run_id, "turn_id": turn.turn_id}
        extra |= {"stop_reason": turn.stop_reason} if turn.stop_reason else {}
        if request is not None and turn.text is None:
            extra |= {"status": request.status.value, "error": request.error}
        results: list[Doc] = [_result(call) for call in turn.calls]
        results += [{"content": turn.remark}] if turn.remark else []
        return self._numbered(
            "agent",
            text,
            (request.finished_at or request.registered_at) if request else None,
            model_name=request.name if request else None,
            tool_calls=[_call(call) for call in turn.calls],
            observation={"results": results} if results else None,
            metrics=self._metrics(turn.usage),
            extra=extra,
        )

    def _metrics(self, usage: Doc | None) -> Doc:
        found: Doc = {}
        for ours, theirs, total in _METRICS:
            number = (usage or {}).get(ours)
            if isinstance(number, int | float):
                found[theirs] = number
                self._totals[total] = self._totals.get(total, 0) + number
        return found

    def _over(self, over: RunOver) -> Iterator[Doc]:
        run = over.view.run
        extra: Doc = {"run_id": run.run_id, "status": over.view.status.value}
        if over.report is not None:
            yield self._numbered("agent", over.report, run.terminal_at, extra=extra)
        elif over.closing is not None and over.closing.role == "system":
            yield self._numbered("system", over.closing.text, over.closing.at, extra=extra)


def _call(call: ExportedCall) -> Doc:
    arguments = call.arguments
    doc: Doc = {"tool_call_id": call.call_id, "function_name": call.name}
    if isinstance(arguments, str):
        # The format wants an object, and the model gave none.
        return doc | {"arguments": {}, "extra": {"arguments_text": arguments}}
    return doc | {"arguments": arguments}


def _result(call: ExportedCall) -> Doc:
    doc: Doc = {"source_call_id": call.call_id, "content": call.told}
    return doc | {"extra": _truth(call.operation) if call.operation else {"status": "never started"}}


def _truth(operation: Operation) -> Doc:
    truth: Doc = {"operation_id": operation.operation_id, "status": operation.status.value}
    truth |= {"may_have_effects": True} if operation.may_have_effects else {}
    truth |= {"unresolved": True} if operation.is_unresolved else {}
    times = {"started_at": operation.started_at, "finished_at": operation.finished_at}
    return truth | {name: at for name, at in times.items() if at}
