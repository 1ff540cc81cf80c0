"""The commands by which sessions leave agentrun and come into it, as they stand on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def export(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION[/RUN]", help="an id, a unique beginning or end of one, or @last", show_default=False
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="markdown, json or openai (default: by the name of --output, else markdown)",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="write this file (default: standard output)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace FILE if it is there")] = False,
) -> int:
    """Write a session, or one run of it, in a form for elsewhere. Changes nothing.

    \b
    agentrun export @last --output talk.md
    agentrun export @last/1 --format openai | jq length
    """
    from agentrun.cli import exporting

    return exporting.export(ctx.obj, session, exporting.Wanted(form, output, overwrite=overwrite))
