"""`show`: look at a session or a run."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands import show as showing
from agentrun.commands.names import Target, find
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError, NotFound, UsageError
from agentrun.named import NamedTuple
from agentrun.records.message import Message
from agentrun.render import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.event import Event


class Look(NamedTuple):
    """The options of `show`."""

    messages: bool = False
    operations: bool = False
    report: bool = False
    since: int | None = None
    tail: int | None = None
    raw: bool = False
    timeline: bool = False
    html: str | None = None
    overwrite: bool = False

    is_followed: bool = False

    @property
    def forms(self) -> list[str]:
        """What of it was asked for, as options."""
        asked = {
            "-f": self.is_followed,
            "--messages": self.messages,
            "--operations": self.operations,
            "--report": self.report,
            "--timeline": self.timeline,
            "--html": self.html is not None,
        }
        return [name for name, is_asked in asked.items() if is_asked]

    @property
    def narrowing(self) -> list[str]:
        """What it was narrowed by, as options."""
        asked = {
            "--since": self.since is not None,
            "--tail": self.tail is not None,
            "--raw": self.raw,
            "--overwrite": self.overwrite,
        }
        return [name for name, is_asked in asked.items() if is_asked]


# What each form can be narrowed by; with another it would mean nothing, and is refused.
_TAKES: dict[str, frozenset[str]] = {
    "": frozenset({"--since", "--tail"}),
    "-f": frozenset({"--since"}),
    "--messages": frozenset({"--since", "--tail", "--raw"}),
    "--operations": frozenset({"--since", "--tail"}),
    "--report": frozenset({"--raw"}),
    "--timeline": frozenset({"--tail"}),
    "--html": frozenset({"--overwrite"}),
}


def show(options: Options, name: str, look: Look) -> int:
    """Shows a session, a run, or one aspect of it; 0 whatever the run's state is."""
    _check(look)
    place = options.place()
    target = find(place.tree, name)
    if look.html is not None or look.timeline:
        _show_picture(options, place, target, look)
    elif look.messages:
        _show_messages(options, target, look)
    elif look.operations:
        _show_operations(options, target, look)
    elif look.report:
        _show_report(options, target, look)
    elif target.run_id is not None:
        _show_run(options, target, look)
    else:
        _show_session(options, target, look)
    return exits.OK


def _check(look: Look) -> None:
    """Raises UsageError for options that do not go together."""
    forms = look.forms
    if forms == ["--timeline", "--html"]:
        forms = ["--html"]  # which has the timeline in it
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(forms)} exclude each other", hint="ask for one after the other")
    form = forms[0] if forms else ""
    for option in look.narrowing:
        if option not in _TAKES[form]:
            others = [name for name, takes in _TAKES.items() if name and option in takes]
            raise UsageError(
                f"{option} means nothing {f'with {form}' if form else 'here'}",
                hint=f"it goes with: {', '.join(others)}",
            )


def follow(options: Options, name: str, look: Look) -> int:
    """Watches a run from its beginning, or from an event on, to where it ends or waits."""
    from agentrun.cli.audience import audience_for
    from agentrun.cli.family import check_waits_for_others
    from agentrun.cli.watching import watch

    _check(look)
    place = options.place()
    target = find(place.tree, name)
    named = Target(target.session, target.run().run_id)
    check_waits_for_others(place, [named])
    return watch(options, named, audience_for(options, patient=True), with_report=True, since=look.since or 0)


def _show_picture(options: Options, place: Place, target: Target, look: Look) -> None:
    from agentrun.cli import picturing

    damage: list[str] = []
    if look.html is not None:
        picturing.html(options, place, target, look.html, damage, overwrite=look.overwrite)
    else:
        picturing.timeline(options, place, target, look.tail, damage)
    output.warn(options, damage)


def _show_session(options: Options, target: Target, look: Look) -> None:
    if look.since is not None:
        raise UsageError(
            "--since counts the messages or the events, so of a session it needs --messages",
            hint=f"agentrun show {target.session.session_id} --messages --since {look.since}",
        )
    unreadable: list[AgentrunError] = []
    view = showing.session_view(target.session, unreadable, look.tail or showing.NEWEST)
    if options.json:
        from agentrun.render.json import json_line, session_doc

        output.out_bytes(json_line(session_doc(view)))
    else:
        output.out(plain.session_text(view, output.screen_of(sys.stdout, options)))
    output.warn(options, [*map(str, unreadable), *map(str, showing.damage(target.session))])


def _show_run(options: Options, target: Target, look: Look) -> None:
    run_dir = target.run()
    tail = look.tail or showing.NEWEST
    detail = showing.run_detail(target.session, run_dir, tail, look.since)
    unreadable: list[str] = []
    if detail.view.run.children:
        from agentrun.commands.children import child_views
        from agentrun.commands.kinship import as_children_tell

        place = options.place()
        detail = as_children_tell(place, detail)._replace(children=child_views(place, detail.view.run, unreadable))
    if options.json:
        from agentrun.render.json import json_line, run_doc

        events = list(showing.operations(run_dir, look.since, tail))
        output.out_bytes(json_line(run_doc(detail, events)))
    else:
        output.out(plain.run_text(detail, output.screen_of(sys.stdout, options)))
    output.warn(options, [*unreadable, *map(str, showing.damage(target.session, run_dir))])


def _show_messages(options: Options, target: Target, look: Look) -> None:
    screen = output.screen_of(sys.stdout, options)
    document = target.session.read()
    for message in showing.messages(target.session, look.since, look.tail):
        named = message._replace(run_id=document.run_of(message))
        _print(options, message, look, lambda each=named: plain.message_text(each, screen))
    output.warn(options, map(str, showing.damage(target.session)))


def _show_operations(options: Options, target: Target, look: Look) -> None:
    run_dir = target.run()
    screen = output.screen_of(sys.stdout, options)
    for event in showing.operations(run_dir, look.since, look.tail):
        _print(options, event, look, lambda each=event: plain.event_text(each, screen))
    output.warn(options, map(str, showing.damage(target.session, run_dir)))


def _show_report(options: Options, target: Target, look: Look) -> None:
    run_dir = target.run()
    report = run_dir.report()
    if report is None:
        run = run_dir.load()
        raise NotFound(
            f"{run_dir.name} has no report: its status is {run.status}",
            hint=f"what has been generated so far: {run_dir.directory.at('report.draft.md')}",
            session_id=run.session_id,
            run_id=run.run_id,
        )
    if options.json:
        from agentrun.render.json import json_line

        output.out_bytes(json_line({"sessionId": run_dir.session_id, "runId": run_dir.run_id, "report": report}))
    elif look.raw or not output.is_terminal(sys.stdout):
        output.out(report if report.endswith("\n") else f"{report}\n")
    else:
        output.out(plain.report_text(report, output.screen_of(sys.stdout, options)))


def _print(options: Options, record: Message | Event, look: Look, text: object) -> None:
    if options.json:
        from agentrun.render.json import json_line

        output.out_bytes(json_line(record.to_doc()))
    elif look.raw and isinstance(record, Message):
        output.out(f"{record.text}\n")
    else:
        output.out(text())  # type: ignore[operator]
