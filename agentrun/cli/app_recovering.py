"""The commands that take up what others left, as they stand on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun.states import SETTLEMENTS

app = typer.Typer()


@app.command()
def recover(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="stay, and do so whenever an executor is lost")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done; write nothing")] = False,
) -> int:
    """Take up the runs that nobody drives: continue them, end them, or say what is missing.

    \b
    agentrun recover                    once; 0 = all settled, 6 = something is left
    agentrun recover --dry-run          what it would do
    agentrun recover --watch            as a service, until SIGTERM (docs/recovering.md)
    """
    from agentrun.cli import recovering

    return recovering.recover(ctx.obj, watch=watch, dry_run=dry_run)


@app.command()
def reconcile(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(metavar="SESSION[/RUN]", help="default run: the active, else the newest", show_default=False),
    ],
    operation: Annotated[str | None, typer.Argument(metavar="OP", help="the operation, such as op-3")] = None,
    status: Annotated[str | None, typer.Option("--as", metavar="|".join(SETTLEMENTS), help="how it ended")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="how you know, for the record")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="ask the tools' probes first, and record what they know")] = False,
) -> int:
    """List what nobody knows about a run's operations, or say how one of them ended.

    It starts nothing: `agentrun recover` or `agentrun resume` goes on then.

    \b
    agentrun reconcile @last                                       what is unresolved
    agentrun reconcile @last --ask                                 what still is after asking the probes again
    agentrun reconcile @last op-3 --as succeeded --note "the file is there"
    """
    from agentrun.cli import recovering

    return recovering.settle(ctx.obj, session, operation, status, note, ask=ask)


@app.command()
def resume(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(metavar="SESSION[/RUN]", help="default run: the active, else the newest", show_default=False),
    ],
    detach: Annotated[
        bool, typer.Option("--detach", help="return at once; the run goes on without this terminal")
    ] = False,
) -> int:
    """Continue an unfinished run that nobody drives, or begin an ended one anew.

    It says which.

    \b
    agentrun resume @last
    agentrun resume @last/3 --detach
    """
    from agentrun.cli import resuming

    return resuming.resume(ctx.obj, session, detach=detach)
