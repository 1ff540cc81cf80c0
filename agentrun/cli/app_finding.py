"""The command that finds what was said, as it stands on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def search(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="what to look for, capitals or not", show_default=False)],
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="only there (default: all sessions)")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="how many at the most (default: all)")] = None,
) -> int:
    """Find a text in messages and reports.

    Archived sessions too; what is in the session that changed last comes first.

    \b
    agentrun search "revenue dropped"
    agentrun search 429 --session @last
    agentrun search refund --json | jq -r '"\\(.sessionId) \\(.seq)"'
    """
    from agentrun.cli import searching

    return searching.search(ctx.obj, text, session, limit)
