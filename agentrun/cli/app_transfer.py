"""The commands by which sessions leave agentrun and come into it, as they stand on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def export(
    ctx: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION[/RUN]]", help="an id, a unique beginning or end of one, or @last", show_default=False
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="markdown|html|json|openai|atif|otlp|archive",
            help="default: what the name of --output says, else markdown",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="write this file (default: standard output)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace FILE if it is there")] = False,
    every: Annotated[bool, typer.Option("--all", help="an archive of all sessions of the account")] = False,
) -> int:
    """Write a session, or one run of it, in a form for elsewhere. Changes nothing.

    \b
    agentrun export @last --output talk.md
    agentrun export @last/1 --format openai | jq length
    agentrun export @last --format otlp | curl -H 'content-type: application/json' -d @- localhost:4318/v1/traces
    agentrun export @last --format archive | ssh tea agentrun import -
    agentrun export --all --output backup.tar
    """
    from agentrun.cli import exporting

    return exporting.export(ctx.obj, session, exporting.Wanted(form, output, overwrite=overwrite, every=every))


@app.command("import")
def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="- reads standard input", show_default=False)],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            "--from",
            metavar="archive|claude-code|codex|llm",
            help="default: what FILE turns out to be",
        ),
    ] = None,
    new_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="the id that the session gets")] = None,
) -> int:
    """Take sessions in, from archives or other programs' files. Executes nothing, and prints their ids.

    \b
    agentrun import backup.tar
    agentrun import talk.tar --as talk-again
    agentrun import ~/.codex/sessions/2026/03/20/rollout-*.jsonl
    agentrun import "$(llm logs path)"
    """
    from agentrun.cli import importing

    return importing.import_file(ctx.obj, file, form, new_id)
