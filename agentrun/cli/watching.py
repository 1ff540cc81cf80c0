"""Watching a run that another process executes, and saying how it stands at the end."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.audience import Shown, TerminalAudience
from agentrun.cli.lateness import LateNote
from agentrun.cli.options import Options
from agentrun.cli.output import ReaderGone
from agentrun.commands.names import Target
from agentrun.commands.show import Follower, run_detail, told
from agentrun.records.event import Event
from agentrun.records.views import RunView
from agentrun.render.plain import report_text
from agentrun.render.standing import attention_text, ended_text, hints_after_send


def watch(options: Options, target: Target, audience: Shown, *, with_report: bool, since: int = 0) -> int:
    """Watches a run until it ends, waits for the user or is lost; Ctrl-C leaves it alone."""
    follower = Follower(target, since)
    late = LateNote()
    screen = output.screen_of(sys.stdout if output.is_terminal(sys.stdout) else sys.stderr, options)
    try:
        while True:
            _show_news(follower, audience)
            if follower.is_over:
                break
            if said := late.news(follower.view, screen):
                audience.note(said)
            if not audience.outlet.is_read:
                raise audience.outlet.failure or ReaderGone
            follower.wait(audience.tick())
    except KeyboardInterrupt:
        audience.finish(None)
        _say_it_goes_on(options, follower.view)
        raise
    finally:
        follower.close()
    return end_view(options, target, audience, with_report=with_report)


def _say_it_goes_on(options: Options, view: RunView) -> None:
    """Whoever leaves a view has stopped nothing, and is told so."""
    if options.json or not output.is_terminal(sys.stderr):
        return
    output.note(f"{view.run.session_id}/{view.run.run_id} goes on; nothing was stopped")
    output.say(hints_after_send(view, output.screen_of(sys.stderr, options)))


def end_view(options: Options, target: Target, audience: Shown, *, with_report: bool) -> int:
    """Says how the run stands, with its report where one was asked for. Returns the exit code that says the same."""
    run_dir = target.run()
    view = told(run_dir)
    detail = run_detail(target.session, run_dir)
    audience.finish(detail)
    if audience.outlet.failure is not None:
        raise audience.outlet.failure
    if options.json:
        return exits.of_run(view)
    report = run_dir.report()
    if report is not None and with_report:
        if output.is_terminal(sys.stdout):
            output.out("\n" + report_text(report, output.screen_of(sys.stdout, options)))
        else:
            output.out(report if report.endswith("\n") else f"{report}\n")
    screen = output.screen_of(sys.stderr, options)
    if not isinstance(audience, TerminalAudience):
        output.say(ended_text(view, screen) + attention_text(view, screen))
    if output.is_terminal(sys.stderr):
        output.say(hints_after_send(view, screen))
    return exits.of_run(view)


def _show_news(follower: Follower, audience: Shown) -> None:
    for news in follower.step():
        if isinstance(news, Event):
            # What it tells of may have come so long ago that the audience does not hold it.
            for message in filter(None, map(follower.session.message_at, audience.forgotten(news))):
                audience.message(message)
            audience.event(news)
        else:
            audience.message(news)
    if isinstance(audience, TerminalAudience):
        draft = follower.new_draft()
        if draft is not None:
            audience.whole_draft(draft)
