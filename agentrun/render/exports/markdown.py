"""A session or a run to read: Markdown, with every call and what became of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentrun.records.attachment import attachments_of
from agentrun.records.codec import encode_document
from agentrun.records.exported import Export, ExportedCall, ExportedTurn, RunOver, Said
from agentrun.records.operation import Operation
from agentrun.records.session import Session
from agentrun.records.views import RunView
from agentrun.render.safe import shown_line
from agentrun.render.times import between, duration
from agentrun.render.transcript import usage_words
from agentrun.states import OperationStatus

_WHO = {"user": "User", "assistant": "Agent", "system": "agentrun"}
_TICKS = re.compile("`+")


def write(export: Export) -> Iterator[bytes]:
    """The file, part by part. Bytes that were no UTF-8 are shown as escapes."""
    for text in _parts(export):
        yield text.encode("utf-8", "backslashreplace")


def _parts(export: Export) -> Iterator[str]:
    yield _head(export.session)
    for said in export.copied():
        yield _said(said)
    for run in export.runs():
        yield _run_head(run.view)
        for step in run.steps():
            match step:
                case Said():
                    yield _said(step)
                case ExportedTurn():
                    yield from _turn(step)
                case RunOver():
                    yield from _over(step)


def _head(session: Session) -> str:
    title = shown_line(session.title).strip() or session.session_id
    lines = [f"# {title}", "", f"* session: `{session.session_id}`", f"* made: {session.created_at}"]
    if session.forked_from:
        lines.append(f"* forked from: `{session.forked_from.get('sessionId')}`, message {session.copied}")
    return "\n".join([*lines, ""])


def _run_head(view: RunView) -> str:
    run = view.run
    lines = ["", f"## {run.run_id}: {view.words}", ""]
    took = between(run.started_at, run.terminal_at)
    facts = {
        "agent": f"`{shown_line(run.agent)}`" if run.agent else None,
        "began": run.created_at,
        "ended": run.terminal_at,
        "took": None if took is None else duration(took),
        "used": ", ".join(usage_words(run.usage)),
        "cites": ", ".join(run.references),
        "continues": run.continues,
    }
    return "\n".join([*lines, *(f"* {name}: {value}" for name, value in facts.items() if value), ""])


def _said(said: Said) -> str:
    message = said.message
    kind = f"{message.mode}, " if message.mode else ""
    lines = ["", f"### {_WHO[message.role]} ({kind}message {message.seq}, {said.run}, {message.at})", ""]
    if said.left:
        lines += [f"*Not delivered: {said.left}.*", ""]
    lines += [message.text.rstrip("\n"), ""]
    lines += [f"* attached: {shown_line(each.name)}, {each.size:,} bytes" for each in attachments_of(message)]
    return "\n".join(lines)


def _turn(turn: ExportedTurn) -> Iterator[str]:
    request = turn.request
    model = f", {shown_line(request.name)}" if request else ""
    at = f", {request.finished_at or request.registered_at}" if request else ""
    what = "Report" if turn.is_report else "Agent"
    lines = ["", f"### {what} ({turn.turn_id}{model}{at})", ""]
    if request and request.status is not OperationStatus.SUCCEEDED:
        why = f": {shown_line(request.error)}" if request.error else ""
        lines += [f"*The model request {request.status.value}{why}*", ""]
    lines += [part.rstrip("\n") + "\n" for part in (turn.text, turn.question) if part]
    yield "\n".join(lines)
    for call in turn.calls:
        yield _call(call)
    for check in turn.checks:
        yield f"\n* check `{shown_line(check.name)}`: {_became(check)}\n"


def _call(call: ExportedCall) -> str:
    operation = call.operation
    label = f"{operation.operation_id}: {_became(operation)}" if operation else "never started"
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else encode_document(arguments).decode("utf-8")
    return "\n".join(
        ["", f"#### {shown_line(call.name)} ({label})", "", fenced(text, "json"), "", fenced(call.told, ""), ""]
    )


def _became(operation: Operation) -> str:
    took = between(operation.started_at, operation.finished_at)
    words = [operation.status.value, *([duration(took)] if took is not None else [])]
    words += ["unresolved"] if operation.is_unresolved else []
    words += [f"remote id {shown_line(operation.remote_id)}"] if operation.remote_id else []
    return ", ".join(words)


def _over(over: RunOver) -> Iterator[str]:
    if over.report is not None:
        yield f"\n### Report\n\n{over.report.rstrip()}\n"
    elif over.closing is not None and over.closing.role == "system":
        quoted = over.closing.text.strip("\n").replace("\n", "\n> ")
        yield f"\n> {quoted}\n"
    elif not over.view.run.is_over:
        yield f"\n> This run is not over: it is {over.view.words}.\n"


def fenced(text: str, language: str) -> str:
    """`text` in a block of code that nothing inside it can end."""
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    body = text.rstrip("\n")
    return f"{fence}{language}\n{body}\n{fence}"
