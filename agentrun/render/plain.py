"""Text for terminals and pipes: a session, a run, a list, an error. Coloured only if the screen says so.

Every function returns complete lines, newline included, and everything in them is safe for a terminal.
"""

from __future__ import annotations

import time

from agentrun.errors import AgentrunError, Ambiguous
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.session import Session
from agentrun.records.views import RunDetail, RunView, SessionView
from agentrun.render import hints
from agentrun.render.safe import excerpt, padded, shown
from agentrun.render.theme import Screen, Span, Style, line, lines_text, run_status, say
from agentrun.render.times import age, between, duration, moment
from agentrun.render.transcript import attached_lines, block, conversation, counted, run_head, usage_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "about_text",
    "error_text",
    "event_text",
    "message_text",
    "question_text",
    "report_text",
    "run_text",
    "session_text",
]

# Names that an ambiguous one can mean; whoever needs more gives more of it.
_MOST_CANDIDATES = 20


def session_text(view: SessionView, screen: Screen, now: float | None = None) -> str:
    """A session: its title, its runs (newest first), and what needs attention in them."""
    now = time.time() if now is None else now
    session = view.session
    head = [Span(say(session.session_id, screen), Style.STRONG), Span(f"  {say(session.title, screen)}")]
    lines = [line(head, screen).rstrip(), _about(view, screen, now)]
    ids = max((len(run.run.run_id) for run in view.runs), default=0)
    for run in view.runs:
        lines.append(_run_row(run, ids, screen, now))
        lines += [f"    {each}" for each in hints.attention(run, screen, now)]
    if view.older:
        lines.append(line([Span(f"  {view.older:,} older: --tail {len(view.runs) + view.older}", Style.DIM)], screen))
    if not view.runs:
        lines.append("  no runs yet")
    return lines_text(lines)


def about_text(session: Session, screen: Screen) -> str:
    """What a session is called, and how often that and the like have been changed."""
    archived = ", archived" if session.archived else ""
    return lines_text(
        [f'{say(session.session_id, screen)}  "{say(session.title, screen)}"{archived}  revision {session.revision}']
    )


def question_text(session: Session, messages: int, runs: int, screen: Screen) -> str:
    """Asks whether a session may be removed; the cursor stays behind it."""
    name = f'{say(session.session_id, screen)} "{say(session.title, screen)}"'
    return f"remove {name} with {counted(messages, 'message')} and {counted(runs, 'run')}, for good? [y/N] "


def run_text(detail: RunDetail, screen: Screen, now: float | None = None) -> str:
    """A run: status, everything in order, what needs attention, and the report at its end."""
    now = time.time() if now is None else now
    view = detail.view
    lines = [run_head(view, screen, now), *_origin(view, screen), *_reason(view, screen), ""]
    if detail.earlier:
        count = len(detail.operations) + detail.earlier
        lines.append(
            line([Span(f"{detail.earlier:,} earlier operations are left out: --tail {count}", Style.DIM)], screen)
        )
    lines += conversation(detail, screen)
    lines += _children(detail, screen)
    needs = hints.attention(view, screen, now)
    if needs:
        lines += ["", *needs]
    text = lines_text(lines)
    return text if detail.report is None else f"{text}\n{report_text(detail.report, screen)}"


def message_text(message: Message, screen: Screen) -> str:
    """One message of a conversation: who, what kind, in which run, and the text in full."""
    who = say(f"{message.role} {message.mode}" if message.mode else message.role, screen)
    head = [Span(f"#{message.seq} {who}", Style.STRONG), Span(f"  {say(message.run_id, screen)}", Style.DIM)]
    return lines_text([line(head, screen), *block(message.text, screen), *attached_lines(message, screen)])


def event_text(event: Event, screen: Screen) -> str:
    """One event as one line: number, type, and what it says as far as the width allows."""
    head = f"{event.seq:>5}  {say(event.type, screen)}"
    import json

    rest = excerpt(json.dumps(event.payload, ensure_ascii=False), screen.width - len(head) - 2, unicode=screen.unicode)
    return lines_text([line([Span(head), Span(f"  {rest}", Style.DIM)], screen)])


def report_text(report: str, screen: Screen) -> str:
    """A report as a person reads it: its own text, made safe. A pipe gets the bytes instead."""
    return lines_text(block(report, screen, indent=""))


def error_text(error: AgentrunError, screen: Screen) -> str:
    """`agentrun: sentence`, and below it what to type next."""
    lines = [line([Span("agentrun:", Style.BAD), Span(f" {say(error.message, screen)}")], screen)]
    if isinstance(error, Ambiguous):
        lines += [f"  {say(candidate, screen)}" for candidate in error.candidates[:_MOST_CANDIDATES]]
        left = len(error.candidates) - _MOST_CANDIDATES
        lines += [f"  and {left:,} more"] if left > 0 else []
    if error.hint:
        lines += [f"  {each}" for each in shown(error.hint, unicode=screen.unicode).split("\n")]
    return lines_text(lines)


def _about(view: SessionView, screen: Screen, now: float) -> str:
    session = view.session
    created = moment(session.created_at)
    words = [f"agent {say(session.agent, screen)}"] if session.agent else []
    if created is not None:
        words.append(f"created {_ago(now - created)}")
    if session.archived:
        words.append("archived")
    if session.forked_from:
        origin = f"{session.forked_from.get('sessionId')} at #{session.copied}"
        words.append(f"forked from {say(origin, screen)}")
    return line([Span(f"  {'  '.join(words)}".rstrip(), Style.DIM)], screen)


def _run_row(view: RunView, ids: int, screen: Screen, now: float) -> str:
    run = view.run
    status = run_status(view, screen)
    # Wide enough for every status alone; the rare notes behind one push their own row only.
    fill = " " * max(15 - sum(len(span.text) for span in status), 0)
    begun = moment(run.created_at)
    took = between(run.started_at, run.terminal_at)
    words = [
        duration(took) if took is not None else "",
        _ago(now - begun) if begun is not None else "",
        *usage_words(run.usage),
        excerpt(run.reason, screen.width, unicode=screen.unicode) if run.reason and run.is_over else "",
    ]
    rest = "".join(f"  {word}" for word in words if word)
    name = padded(say(run.run_id, screen), ids)
    return line([Span(f"  {name}  "), *status, Span(f"{fill}{rest}", Style.DIM)], screen).rstrip()


def _origin(view: RunView, screen: Screen) -> Iterable[str]:
    """Which other runs this one stands on."""
    run = view.run
    if run.references:
        yield line([Span(f"  cites {say(' '.join(run.references), screen)}", Style.DIM)], screen)
    if run.continues:
        yield line([Span(f"  continues {say(run.continues, screen)}", Style.DIM)], screen)
    if run.parent_run:
        parent = [str(run.parent_run.get(name)) for name in ("sessionId", "runId", "operationId")]
        above = f"{say(parent[0], screen)}/{say(parent[1], screen)} ({say(parent[2], screen)})"
        yield line([Span(f"  child of {above}", Style.DIM)], screen)


def _children(detail: RunDetail, screen: Screen) -> Iterable[str]:
    """The runs that it began."""
    for child in detail.children:
        run = child.view.run
        name = f"{say(run.session_id, screen)}/{say(run.run_id, screen)}"
        yield line(
            [Span(f"  child of {say(child.operation_id, screen)}: {name}  "), *run_status(child.view, screen)], screen
        )


def _reason(view: RunView, screen: Screen) -> list[str]:
    """Why the run ends or ended as it did."""
    return [f"  reason: {say(view.run.reason, screen)}"] if view.run.reason else []


def _ago(seconds: float) -> str:
    words = age(seconds)
    return words if words == "now" else f"{words} ago"
