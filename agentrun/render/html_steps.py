"""What happened in a run as a part of a page: what was said, and each operation with all that is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentrun.records.attachment import attachments_of
from agentrun.records.message import QUESTION as QUESTION_MODE
from agentrun.records.message import Message
from agentrun.records.operation import MODEL, Operation
from agentrun.records.timeline import RunRecord
from agentrun.records.views import InputState
from agentrun.render.html_chart import step_id
from agentrun.render.html_text import CLASS_OF, block, inline, sign, when
from agentrun.render.markdown import markdown_html
from agentrun.render.placing import steps
from agentrun.render.theme import NOTE, OPERATION_MARKS, QUESTION, USER
from agentrun.render.times import between, duration
from agentrun.render.transcript import input_words, is_report


def steps_html(record: RunRecord, anchor: str) -> Iterator[str]:
    """The steps of a run in order, its operations as its timeline has them; its report is left to the caller."""
    detail, timeline = record
    yield '<ol class="steps">\n'
    for step in steps(detail, lambda: (bar.operation for bar in timeline.bars)):
        yield f'<li id="{step_id(anchor, step)}">'
        if isinstance(step, Operation):
            yield from _operation(step, is_reply=not is_report(step, detail.report))
        elif isinstance(step, InputState):
            yield _said(step.message, input_words(step))
        else:
            yield _said(step)
        yield "</li>\n"
    yield "</ol>\n"


def message_html(message: Message, run: str) -> str:
    """A message outside of its run, which is named."""
    return f"<li>{_said(message, run)}</li>\n"


def _said(message: Message, became: str = "") -> str:
    """Something that was said; `became` is what became of it."""
    mark = USER if message.is_input else QUESTION if message.mode == QUESTION_MODE else NOTE
    kind = "user" if message.is_input else message.role if message.role in ("assistant", "system") else ""
    head = f"{sign(mark)} <b>#{message.seq} {inline(message.mode or message.role)}</b>"
    words = f' <span class="dim">{inline(became)}</span>' if became else ""
    files = "".join(
        f'<p class="dim">attached {inline(each.name)}, {each.size:,} bytes</p>\n' for each in attachments_of(message)
    )
    return (
        f'<section class="said {kind}"><p class="head">{head}{words} <span class="at">{when(message.at)}</span></p>\n'
        f"{block(message.text)}{files}</section>"
    )


def _operation(operation: Operation, *, is_reply: bool) -> Iterator[str]:
    is_model = operation.kind == MODEL
    # What a model says is read; what goes into and comes out of a tool is looked up.
    yield f'<details class="operation"{"" if is_model else _open(operation)}><summary>{_summary(operation)}</summary>\n'
    yield _facts(operation)
    if operation.arguments:
        yield _part("arguments", json.dumps(operation.arguments, ensure_ascii=False, indent=2))
    if operation.error:
        yield _part("error", operation.error, "bad")
    if operation.result and not is_model:
        yield _part("result", operation.result)
    if operation.blob:
        size, name = operation.blob.get("bytes"), operation.blob.get("sha256")
        yield _part("result", f"{size} bytes, kept in blobs/{name}")
    if operation.note:
        yield _part("note", operation.note, "care")
    yield "</details>"
    if is_model and is_reply and operation.result:
        yield f'<div class="reply">{markdown_html(operation.result)}</div>'


def _open(operation: Operation) -> str:
    """What went wrong, or is not known, is seen without a click."""
    return " open" if operation.error or operation.is_unresolved else ""


def _summary(operation: Operation) -> str:
    mark = OPERATION_MARKS[operation.status]
    kind = f"{operation.kind} " if operation.kind == MODEL else ""
    words = [f'<span class="{CLASS_OF[mark.style]}">{operation.status.value.replace("_", " ")}</span>']
    if operation.is_unresolved and operation.status.value != "unknown":
        words.append('<span class="care">unresolved</span>')
    took = between(operation.started_at, operation.finished_at)
    if took is not None:
        words.append(f'<span class="dim">{duration(took)}</span>')
    if operation.attempt > 1:
        words.append(f'<span class="care">attempt {operation.attempt}</span>')
    if operation.remote_id:
        words.append(f"remote id {inline(operation.remote_id)}")
    name = f"{inline(operation.operation_id)} <b>{kind}{inline(operation.name)}</b>"
    return f"{sign(mark)} {name} {' '.join(words)}"


def _facts(operation: Operation) -> str:
    facts = [
        ("turn", inline(operation.turn_id or "")),
        ("effect", inline(operation.effect or "")),
        ("resource", inline(operation.resource or "")),
        ("started", when(operation.started_at)),
        ("finished", when(operation.finished_at)),
    ]
    told = "".join(f"<span>{name} {text}</span> " for name, text in facts if text != "<bdi></bdi>" and text)
    return f'<p class="facts dim">{told}</p>\n'


def _part(name: str, text: str, kind: str = "") -> str:
    return f'<p class="label {kind}">{name}</p>{block(text)}'
