"""The commands and their arguments, one function each; what they do is in modules of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun import __version__
from agentrun.cli import app_configuring, app_finding, app_recovering, app_sessions, app_transfer, help_pages
from agentrun.cli.choices import OneOf
from agentrun.cli.help_pages import wrapped
from agentrun.cli.options import CANCEL_REASON, COMMON, LISTED
from agentrun.commands.inputs import MODES, IfBusy
from agentrun.errors import exit_table
from agentrun.states import RunStatus

_EXITS = "\n".join(
    line for code, word, meaning in exit_table() for line in wrapped(f"{code:>15}  {word:<14} ", meaning)
)
_COMMON = "\n".join(f"  {f'{each.name} {each.metavar}':<16} {each.about}" for each in COMMON)
_HELP = f"""Sessions and runs of AI agents on a plain directory tree.

\b
  agentrun new "last night's figures"
  agentrun send @last "analyse why revenue dropped"
  agentrun show @last

\b
Options of every command, before or after its name:
{_COMMON}

\b
Exit codes:
{_EXITS}
"""

app = typer.Typer(
    cls=help_pages.Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help=_HELP,
)

# Typer reads these annotations at run time and does not know `X | None` in strings on every version it supports.
Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION[/RUN]", help="an id, a unique beginning or end of one, or @last", show_default=False
    ),
]
Key = Annotated[str | None, typer.Option(metavar="KEY", help="the same key and text again is accepted only once")]
IfEnded = Annotated[
    str | None, typer.Option(metavar="prompt", help="if the run has ended: begin a new one (default: refuse)")
]
Agent = Annotated[
    str | None,
    typer.Option(metavar="AGENT", help="an agent of the configuration (default: the session's, else `default_agent`)"),
]
FirstAgent = Annotated[str | None, typer.Option(metavar="AGENT", help="whose session it is (default: `default_agent`)")]
Files = Annotated[list[str] | None, typer.Option("--file", metavar="FILE", help="add the text of a file")]
Attach = Annotated[
    list[str] | None, typer.Option("--attach", metavar="FILE|shared:NAME", help="let the run have a file as it is now")
]
Detach = Annotated[bool, typer.Option("--detach", help="return once accepted; the run goes on without this terminal")]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="10m", help="executing time after which the run ends, as 30s, 10m, 2h (default: the agent's)"),
]


Words = Annotated[list[str] | None, typer.Argument(metavar="[TEXT] [-]", help="what to say; - reads standard input")]
Mode = Annotated[
    str | None, typer.Option(metavar="|".join(MODES), help="insist on one kind of input (default: the one that fits)")
]
Policy = Annotated[
    IfBusy | None,
    typer.Option(
        parser=OneOf(IfBusy),
        metavar="|".join(IfBusy),
        help="what becomes of it if a run is active (default: it joins that run; with --mode prompt: reject)",
    ),
]
ExpectSeq = Annotated[
    int | None, typer.Option(metavar="N", help="accept it only if the conversation's last message is number N")
]
References = Annotated[list[str] | None, typer.Option(metavar="RUN", help="let the run cite an earlier run's report")]
Since = Annotated[int | None, typer.Option(metavar="SEQ", min=0, help="from this number on (default: the first)")]
Tail = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="only the last N (default: 20; of --messages, --operations and --timeline all)"
    ),
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="write all of it as one page, which opens in any browser; - prints it"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="with --html: replace FILE if it is there (default: refuse)")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentrun {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """See `_HELP`."""


@app.command()
def new(
    ctx: typer.Context,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="what the conversation is about")] = "",
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="use exactly this id")] = None,
    agent: FirstAgent = None,
    send: Annotated[str | None, typer.Option("--send", metavar="TEXT", help="send this as the first prompt")] = None,
) -> int:
    """Make a session and print its id.

    \b
    agentrun new "last night's live stream"
    id=$(agentrun new) && agentrun send "$id" "hello"
    """
    from agentrun.cli import making

    return making.new(ctx.obj, title, session_id=id, agent=agent, text=send)


@app.command()
def send(
    ctx: typer.Context,
    session: Session,
    text: Words = None,
    file: Files = None,
    mode: Mode = None,
    if_busy: Policy = None,
    if_ended: IfEnded = None,
    detach: Detach = False,
    key: Key = None,
    expect_seq: ExpectSeq = None,
    agent: Agent = None,
    ref: References = None,
    attach: Attach = None,
    timeout: Timeout = None,
) -> int:
    """Say something to a session: a prompt, a follow-up or an answer, whichever fits.

    \b
    agentrun send @last "analyse why revenue dropped"
    git diff | agentrun send @last "review this" -
    agentrun send @last "and stock?" --ref run-1 --detach
    agentrun send @last "summarise these" --attach week12.csv --attach shared:notes.md
    """
    from agentrun.cli import sending

    words = sending.Words(text or [], file or [])
    asked = sending.Asked(
        mode, if_busy, if_ended, key, expect_seq, agent, tuple(ref or ()), timeout, detach, tuple(attach or ())
    )
    return sending.send(ctx.obj, session, words, asked)


@app.command()
def steer(
    ctx: typer.Context,
    session: Session,
    text: Annotated[list[str], typer.Argument(metavar="TEXT|-", help="what should change; - reads standard input")],
    key: Key = None,
    if_ended: IfEnded = None,
) -> int:
    """Change the direction of a run: delivered before its next model request.

    \b
    agentrun steer @last "only new products"
    """
    from agentrun.cli import sending

    return sending.steer(ctx.obj, session, sending.Words(text, []), key=key, if_ended=if_ended)


@app.command()
def approve(
    ctx: typer.Context,
    session: Session,
    operation: Annotated[str | None, typer.Argument(metavar="OP", help="the operation, such as op-3")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="why")] = None,
) -> int:
    """Allow the call that a run waits with; the run goes on.

    \b
    agentrun approve @last
    """
    from agentrun.cli import sending

    return sending.settle(ctx.obj, session, operation, approved=True, note=note)


@app.command()
def deny(
    ctx: typer.Context,
    session: Session,
    operation: Annotated[str | None, typer.Argument(metavar="OP", help="the operation, such as op-3")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="why")] = None,
) -> int:
    """Refuse the call that a run waits with; the run goes on without it.

    \b
    agentrun deny @last --note "not on a Friday"
    """
    from agentrun.cli import sending

    return sending.settle(ctx.obj, session, operation, approved=False, note=note)


@app.command()
def cancel(
    ctx: typer.Context,
    session: Session,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="why, for the record")] = CANCEL_REASON,
    wait: Annotated[bool, typer.Option("--wait", help="return when the run is over")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="30s", help="with --wait: how long at the most, as 30s, 10m, 2h (default: no limit)"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="kill at once, also when a grace period runs")] = False,
    gone: Annotated[
        bool, typer.Option("--gone", help="say that the container in which its lost executor ran is gone")
    ] = False,
    operation: Annotated[str | None, typer.Option("--op", metavar="OP", help="only this one, such as op-3")] = None,
) -> int:
    """Stop a run: its model request, its tools and all they started.

    \b
    agentrun cancel @last --wait
    agentrun cancel @last --force         kill what does not end
    agentrun cancel @last --op op-3       one operation; the run goes on
    """
    from agentrun.cli import stopping

    asked = stopping.Asked(reason, operation, force=force, wait=wait, timeout=timeout, gone=gone)
    return stopping.cancel(ctx.obj, session, asked)


@app.command()
def show(
    ctx: typer.Context,
    session: Annotated[str, typer.Argument(metavar="[SESSION[/RUN]]", help="as for send")] = "@last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="watch the run until it ends or waits")] = False,
    messages: Annotated[bool, typer.Option("--messages", help="the conversation")] = False,
    operations: Annotated[bool, typer.Option("--operations", help="the run's events")] = False,
    report: Annotated[bool, typer.Option("--report", help="the run's report alone")] = False,
    since: Since = None,
    tail: Tail = None,
    raw: Annotated[bool, typer.Option("--raw", help="stored text as it is, control characters included")] = False,
    timeline: Annotated[bool, typer.Option("--timeline", help="the run's operations against time")] = False,
    html: Html = None,
    overwrite: Overwrite = False,
) -> int:
    """Show a session or a run, or watch one.

    \b
    agentrun show                       the session that changed last
    agentrun show @last/1               its first run
    agentrun show -f @last              watch the active run
    agentrun show @last --messages --json | jq .text
    agentrun show @last/1 --timeline    what ran when, side by side
    agentrun show @last --html it.html  the whole session for a browser
    """
    from agentrun.cli import showing

    look = showing.Look(messages, operations, report, since, tail, raw, timeline, html, overwrite, follow)
    return showing.follow(ctx.obj, session, look) if follow else showing.show(ctx.obj, session, look)


@app.command()
def wait(
    ctx: typer.Context,
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION[/RUN]...", help="as for show", show_default=False)],
    timeout: Annotated[
        str | None,
        typer.Option(metavar="10m", help="how long at the most, as 30s, 10m, 2h; then exit 124 (default: no limit)"),
    ] = None,
) -> int:
    """Wait until runs have ended; exits as the first one that does not complete, or 0.

    \b
    agentrun wait @last
    agentrun wait "$first" "$second" --timeout 10m && agentrun show "$second" --report
    """
    from agentrun.cli import waiting

    return waiting.wait(ctx.obj, sessions, timeout)


@app.command()
def ls(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="only sessions whose title or id contains this")] = "",
    status: Annotated[
        RunStatus | None,
        typer.Option(
            parser=OneOf(RunStatus), metavar="STATUS", help="only sessions whose newest run is so (default: all)"
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="AGENT", help="only sessions of this agent (default: all)")
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="list those that were put away (default: the others)")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="how many at the most")] = LISTED,
    watch: Annotated[
        bool, typer.Option("--watch", help="go on until Ctrl-C: drawn again, or in a pipe a line, for each change")
    ] = False,
) -> int:
    """List sessions, the one that changed last first.

    On a terminal, those that need you come before all others.

    \b
    agentrun ls --watch
    agentrun ls --status waiting_input
    agentrun ls --json | jq -r .session.sessionId
    """
    from agentrun.cli import listing

    return listing.ls(ctx.obj, listing.Wanted(text, status, agent, archived, limit), is_watched=watch)


@app.command()
def check(
    ctx: typer.Context,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="default: all of the account")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="make again what follows from the records, keep damaged bytes aside")
    ] = False,
) -> int:
    """Look for damage on disk. Changes nothing unless told to, and throws no record away.

    \b
    agentrun check
    agentrun check @last --repair
    """
    from agentrun.cli import checking

    return checking.check(ctx.obj, session, repair=repair)


@app.command()
def acp(ctx: typer.Context, agent: FirstAgent = None) -> int:
    """Serve an editor by the Agent Client Protocol, over standard input and output.

    A prompt is a run that goes on if the editor goes away; only its cancel cancels.

    \b
    agentrun acp --agent analyst
    """
    from agentrun.cli.acp.serving import serve

    return serve(ctx.obj, agent)


app.add_typer(app_finding.app)
app.add_typer(app_sessions.app)
app.add_typer(app_transfer.app)
app.add_typer(app_configuring.app)
app.add_typer(app_recovering.app)
