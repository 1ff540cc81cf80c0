"""A run told in order: its messages and operations as lines that read the same live, in `show` and in a pipe.

Each function returns lines without newlines.
"""

from __future__ import annotations

from agentrun.records.codec import Doc, encode_line
from agentrun.records.message import QUESTION as QUESTION_MODE
from agentrun.records.message import Message
from agentrun.records.operation import MODEL, TOOL, Operation
from agentrun.records.run import Run
from agentrun.records.views import InputState, RunDetail, RunView
from agentrun.render.hints import full_id
from agentrun.render.placing import steps
from agentrun.render.safe import excerpt, shown
from agentrun.render.theme import (
    NOTE,
    OPERATION_MARKS,
    QUESTION,
    USER,
    Screen,
    Span,
    Style,
    line,
    marked,
    run_status,
    say,
)
from agentrun.render.times import between, duration, moment
from agentrun.states import OperationStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_INDENT = "  "
# Characters of one text. Nobody reads more on a screen, and showing it takes several times its size in memory.
_IN_FULL = 1 << 20


def run_head(view: RunView, screen: Screen, now: float) -> str:
    """The run in one line: id, status, how long, what it used."""
    spans = [Span(full_id(view, screen), Style.STRONG), Span("  "), *run_status(view, screen)]
    words = [word for word in (_run_time(view.run, now), *usage_words(view.run.usage)) if word]
    return line([*spans, Span("".join(f"  {word}" for word in words), Style.DIM)], screen)


def usage_words(usage: Doc) -> list[str]:
    """What a run has used, in words; nothing for what it has not."""
    tokens = [usage[name] for name in ("inputTokens", "outputTokens") if isinstance(usage.get(name), int)]
    counts = (
        (usage.get("turns"), "turn"),
        (usage.get("toolCalls"), "tool call"),
        (usage.get("checks"), "check"),
        (usage.get("retries"), "retry"),
        (sum(tokens), "token"),
    )
    words = [counted(number, word) for number, word in counts if isinstance(number, int) and number]
    cost = usage.get("costUsd")
    return [*words, f"${cost:.4f}"] if isinstance(cost, int | float) and cost > 0 else words


def conversation(detail: RunDetail, screen: Screen) -> list[str]:
    """Messages and operations in the order in which the run met them; the report is left to the caller."""
    lines: list[str] = []
    for step in steps(detail):
        if isinstance(step, Operation):
            lines += operation_lines(step, screen, reply=not is_report(step, detail.report))
        elif isinstance(step, InputState):
            lines += input_lines(step, screen)
        else:
            lines += message_lines(step, screen)
    return lines


def input_lines(state: InputState, screen: Screen) -> list[str]:
    """Something the user said, and what became of it."""
    message = state.message
    kind = say(message.mode or "prompt", screen)
    became = say(input_words(state), screen)
    colour = Style.DIM if state.state == "delivered" else Style.CARE
    head = [marked(USER, screen), Span(f" #{message.seq} {kind}", Style.STRONG), Span(f"  {became}", colour)]
    return [line(head, screen), *block(message.text, screen), *attached_lines(message, screen)]


def attached_lines(message: Message, screen: Screen) -> list[str]:
    """The files that go with a prompt."""
    if not (message.accept or {}).get("attachments"):
        return []
    from agentrun.records.attachment import attachments_of

    return [
        line([Span(f"{_INDENT}attached {say(each.name, screen)}, {each.size:,} bytes", Style.DIM)], screen)
        for each in attachments_of(message)
    ]


def input_words(state: InputState) -> str:
    """`waiting`, `delivered (turn-2)`, `returned (the run ended as cancelled)`."""
    why = state.turn_id if state.state == "delivered" else state.reason
    return f"{state.state} ({why})" if why else state.state


def message_lines(message: Message, screen: Screen) -> list[str]:
    """Something the agent or agentrun itself said."""
    mark = QUESTION if message.mode == QUESTION_MODE else NOTE
    kind = say(message.mode or message.role, screen)
    head = [marked(mark, screen), Span(f" #{message.seq} {kind}", mark.style)]
    return [line(head, screen), *block(message.text, screen)]


def operation_lines(operation: Operation, screen: Screen, *, reply: bool = True) -> list[str]:
    """One operation: what it was, how it went; a reply in full (unless `reply` is off), a result in brief."""
    lines = [operation_head(operation, screen)]
    if operation.error:
        lines.append(_brief("error", operation.error, Style.BAD, screen))
    if operation.kind == MODEL:
        if operation.result and reply:
            lines += block(operation.result, screen)
    elif operation.result:
        lines.append(_brief("result", operation.result, Style.DIM, screen))
    if operation.blob:
        size = operation.blob.get("bytes")
        where = f"{size} bytes, kept in blobs/{operation.blob.get('sha256')}"
        lines.append(_brief("result", where, Style.DIM, screen))
    if operation.note:
        lines.append(_brief("note", operation.note, Style.CARE, screen))
    return lines


def operation_head(operation: Operation, screen: Screen, took: str | None = None) -> str:
    """The operation in one line that fits the screen; `took` replaces the time that it took."""
    mark = OPERATION_MARKS[operation.status]
    name = operation.name if operation.kind == TOOL else f"{operation.kind} {operation.name}"
    spans = [marked(mark, screen), Span(f" {say(operation.operation_id, screen)}  {say(name, screen)}")]
    spans += [Span(f"  {word}", style) for word, style in _operation_words(operation, took, screen)]
    if operation.arguments:
        text = encode_line(operation.arguments).decode("utf-8").rstrip("\n")
        spans.append(Span(f"  {excerpt(text, screen.width, unicode=screen.unicode)}", Style.DIM))
    return line(spans, screen, screen.width)


def block(text: str, screen: Screen, indent: str = _INDENT) -> list[str]:
    """Text in full, line by line, as it is but for what could drive a terminal; of a very long one the beginning."""
    if len(text) > _IN_FULL:
        left = f"{len(text) - _IN_FULL:,} of {len(text):,} characters are left out here: --json has them"
        return [*block(text[:_IN_FULL], screen, indent), line([Span(f"{indent}{left}", Style.CARE)], screen)]
    # Only "\n" ends a line: str.splitlines would split at characters that are shown as escapes.
    lines = shown(text.strip("\n"), unicode=screen.unicode).split("\n")
    return [f"{indent}{each}" if each else "" for each in lines]


def is_report(operation: Operation, report: str | None) -> bool:
    """Whether a reply became the report, which is shown once, at the end."""
    if operation.kind != MODEL or not operation.result or report is None:
        return False
    return report.strip().startswith(operation.result.strip())


def _operation_words(operation: Operation, took: str | None, screen: Screen) -> Iterable[tuple[str, Style]]:
    mark = OPERATION_MARKS[operation.status]
    if operation.status not in (OperationStatus.SUCCEEDED, OperationStatus.RUNNING):
        yield operation.status.value, mark.style
    if operation.is_unresolved:
        yield "unresolved", Style.CARE
    elapsed = between(operation.started_at, operation.finished_at)
    if took or elapsed is not None:
        yield took or duration(elapsed or 0.0), Style.DIM
    if operation.pause_ms is not None:
        if not took:
            yield f"attempt {operation.attempt + 1} after {duration(operation.pause_ms / 1000)}", Style.CARE
    elif operation.attempt > 1:
        yield f"attempt {operation.attempt}", Style.CARE
    if operation.remote_id:
        yield f"remote id {say(operation.remote_id, screen)}", Style.PLAIN


def _brief(what: str, text: str, style: Style, screen: Screen) -> str:
    room = max(screen.width - 2 * len(_INDENT) - len(what) - 2, 1)
    return line([Span(f"{2 * _INDENT}{what}: {excerpt(text, room, unicode=screen.unicode)}", style)], screen)


def _run_time(run: Run, now: float) -> str:
    begun = moment(run.started_at)
    if begun is None:
        return ""
    ended = moment(run.terminal_at)
    return duration((now if ended is None else ended) - begun)


def counted(number: int, word: str) -> str:
    """`1 run`, `2 runs`, `1,000 retries`."""
    if number == 1:
        return f"1 {word}"
    return f"{number:,} {word[:-1]}ies" if word.endswith("y") else f"{number:,} {word}s"
