"""A session or a run as one page that opens anywhere: no script, nothing fetched, light or dark, on paper too.

The page forbids itself what it does not need (Content-Security-Policy), so that even a mistake in the escaping of
what models and tools said could run and fetch nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentrun import __version__
from agentrun.clock import timestamp
from agentrun.records.message import Message
from agentrun.records.session import Session
from agentrun.records.timeline import RunRecord
from agentrun.records.views import RunDetail, RunView
from agentrun.render.chart import chart_of
from agentrun.render.html_chart import chart_html
from agentrun.render.html_steps import message_html, steps_html
from agentrun.render.html_style import STYLE
from agentrun.render.html_text import CLASS_OF, attribute, block, inline, sign, when
from agentrun.render.markdown import markdown_html
from agentrun.render.theme import NOTE, QUESTION, RUN_MARKS, glance
from agentrun.render.times import duration, moment
from agentrun.render.transcript import usage_words
from agentrun.states import RunStatus

_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="agentrun {__version__}">
"""


def page(session: Session, loose: Iterable[Message], runs: Iterable[RunRecord], now: float) -> Iterator[str]:
    """The page in pieces, so that a long history is never in memory as a whole. `now` in seconds since the epoch.

    `loose` are messages that belong to none of the session's own runs, as those that a fork copied; `runs` stand in
    the order given, each with its timeline, transcript, report, usage and what is unresolved. Their operations are
    taken from the timeline, which may read them again each time.
    """
    title = session.title or session.session_id
    yield f"{_HEAD}<title>{attribute(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    yield _header(session, title, now)
    yield "<main>\n"
    yield from _loose(session, loose)
    for record in runs:
        yield from _run(record, now)
    yield "</main>\n</body>\n</html>\n"


def _header(session: Session, title: str, now: float) -> str:
    facts = [f"<code>{inline(session.session_id)}</code>"]
    if session.agent:
        facts.append(f"agent {inline(session.agent)}")
    facts.append(f"created {when(session.created_at)}")
    if session.forked_from:
        facts.append(f"forked from {inline(str(session.forked_from.get('sessionId')))} at #{session.copied}")
    if session.archived:
        facts.append("archived")
    facts.append(f"as of {when(timestamp(now))}")
    return f"<header>\n<h1>{inline(title)}</h1>\n{_line(facts)}</header>\n"


def _loose(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    is_begun = False
    for message in messages:
        if not is_begun:
            yield '<section class="run">\n<h2>Before</h2>\n<ol class="steps">\n'
            is_begun = True
        yield message_html(message, session.run_of(message))
    if is_begun:
        yield "</ol>\n</section>\n"


def _run(record: RunRecord, now: float) -> Iterator[str]:
    detail = record.detail
    run = detail.view.run
    anchor = attribute(run.run_id)
    mark = RUN_MARKS[detail.view.status]
    words = "".join(f", {note}" for note in glance(detail.view))
    yield f'<section class="run" id="{anchor}">\n<h2>{sign(mark)} {inline(run.run_id)} '
    yield f'<span class="{CLASS_OF[mark.style]}">{detail.view.words.replace("_", " ")}{words}</span></h2>\n'
    yield _line(_about(detail.view, now))
    yield from _origin(detail)
    if run.reason:
        yield f"<p>reason: {inline(run.reason)}</p>\n"
    yield from _attention(detail.view)
    yield from chart_html(chart_of(detail, record.timeline, now), anchor)
    yield from steps_html(record, anchor)
    if detail.report is not None:
        yield f'<article class="report" aria-label="report">\n{markdown_html(detail.report)}</article>\n'
    yield "</section>\n"


def _about(view: RunView, now: float) -> list[str]:
    run = view.run
    facts = [f"agent {inline(run.agent)}"] if run.agent else []
    begun, ended = moment(run.started_at), moment(run.terminal_at)
    if begun is not None:
        facts.append(f"started {when(run.started_at)}")
        facts.append(duration((now if ended is None else ended) - begun))
    if run.attempts > 1:
        facts.append(f"attempt {run.attempts}")
    return facts + [inline(word) for word in usage_words(run.usage)]


def _origin(detail: RunDetail) -> Iterator[str]:
    """The runs that this one stands on, and those that it began."""
    run = detail.view.run
    if run.references:
        yield f"<p>cites {inline(' '.join(run.references))}</p>\n"
    if run.continues:
        yield f"<p>continues {inline(run.continues)}</p>\n"
    if run.parent_run:
        session, name, operation = (str(run.parent_run.get(key)) for key in ("sessionId", "runId", "operationId"))
        yield f"<p>child of {inline(f'{session}/{name}')} ({inline(operation)})</p>\n"
    for child in detail.children:
        begun = child.view.run
        name = f"{begun.session_id}/{begun.run_id}"
        mark = RUN_MARKS[child.view.status]
        yield f"<p>{inline(child.operation_id)} began {inline(name)} {sign(mark)} {child.view.words}</p>\n"


def _attention(view: RunView) -> Iterator[str]:
    """What is open or unresolved: never hidden, on a page neither."""
    waiting = view.run.waiting_for
    if waiting and view.status is RunStatus.WAITING_INPUT:
        yield f'<div class="attention"><p>{sign(QUESTION)} waits for an answer</p>\n'
        yield f"{block(str(waiting.get('text') or ''))}</div>\n"
    if not view.run.unresolved_operations:
        return
    yield f'<div class="attention"><p>{sign(NOTE)} unresolved: what these did outside is not known</p>\n<ul>\n'
    for operation in view.run.unresolved_operations:
        remote = f"remote id {inline(operation.remote_id)}" if operation.remote_id else "no remote id"
        name = f"{inline(operation.operation_id)} {inline(operation.name)}"
        yield f"<li>{name} {operation.status.value} {remote}</li>\n"
    yield "</ul></div>\n"


def _line(facts: Iterable[str]) -> str:
    return f'<p class="about">{" ".join(f"<span>{fact}</span>" for fact in facts)}</p>\n'
