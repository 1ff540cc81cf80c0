"""The commands that take a session as a whole, as they stand on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()

Session = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="an id, a unique beginning or end of one, or @last", show_default=False),
]


@app.command()
def rename(
    ctx: typer.Context,
    session: Session,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="what the conversation is about")],
    expect_revision: Annotated[
        int | None, typer.Option(metavar="N", help="only if nobody has changed the session since revision N")
    ] = None,
) -> int:
    """Give a session another title.

    \b
    agentrun rename @last "revenue, week 12"
    agentrun rename @last "week 13" --expect-revision "$(agentrun show @last --json | jq .session.revision)"
    """
    from agentrun.cli import keeping

    return keeping.rename(ctx.obj, session, title, expect_revision)


@app.command()
def archive(ctx: typer.Context, session: Session) -> int:
    """Put a session away: `ls` lists it with --archived only. Stops nothing; it can be used as before.

    \b
    agentrun archive @last
    agentrun ls --archived
    """
    from agentrun.cli import keeping

    return keeping.archive(ctx.obj, session, archived=True)


@app.command()
def unarchive(ctx: typer.Context, session: Session) -> int:
    """Take a session back that was put away.

    \b
    agentrun unarchive 7k2m
    """
    from agentrun.cli import keeping

    return keeping.archive(ctx.obj, session, archived=False)


@app.command()
def fork(
    ctx: typer.Context,
    session: Session,
    at: Annotated[
        int | None,
        typer.Option(metavar="SEQ", min=1, help="the last message to take (default: all before a run that goes on)"),
    ] = None,
) -> int:
    """Make a session that begins with what was said in another one, and print its id.

    \b
    agentrun fork @last --at 4
    id=$(agentrun fork @last) && agentrun send "$id" "the same for week 13"
    """
    from agentrun.cli import keeping

    return keeping.fork(ctx.obj, session, at)


@app.command()
def compact(
    ctx: typer.Context,
    session: Session,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="whose model summarises (default: the session's, else `default_agent`)"),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="return once accepted")] = False,
) -> int:
    """Have the history of a session summarised, so that later runs see less of it. Nothing is removed.

    \b
    agentrun compact @last
    """
    from agentrun.cli import compacting

    return compacting.compact(ctx.obj, session, agent, detach=detach)


@app.command()
def rm(
    ctx: typer.Context,
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    force: Annotated[bool, typer.Option("--force", help="give up operations that are unresolved")] = False,
) -> int:
    """Remove a session with all its files. Refused while a run is not over: removing stops nothing.

    \b
    agentrun rm 7k2m
    agentrun cancel 7k2m --wait; agentrun rm 7k2m --yes
    """
    from agentrun.cli import keeping

    return keeping.remove(ctx.obj, session, yes=yes, force=force)
