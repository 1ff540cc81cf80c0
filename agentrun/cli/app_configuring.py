"""`agents`, `config` and `completion`: their arguments; what they do is in `configuring`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun.cli.shells import Shell

app = typer.Typer()


@app.command()
def agents(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[check NAME]", help="try one out: ask its model, find its programs")
    ] = None,
) -> int:
    """List the agents there are, or check that one works.

    \b
    agentrun agents
    agentrun agents check analyst
    """
    from agentrun.cli import configuring

    return configuring.agents(ctx.obj, words or [])


@app.command()
def config(ctx: typer.Context) -> int:
    """Show the configuration as it is in effect, and where each value comes from.

    Secrets are left out.

    \b
    agentrun config
    agentrun config --json | jq '.settings[] | select(.name | startswith("agents."))'

    A configuration to begin with, as agentrun.toml in the root:

    \b
    [agents.first]
    model = "openai:NAME"
    tools = ["stock"]

    \b
    [tools.stock]
    argv = ["sh", "stock.sh"]
    effect = "read"
    """
    from agentrun.cli import configuring

    return configuring.config(ctx.obj)


@app.command()
def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="which shell")]
) -> int:
    """Print what a shell has to read to complete what you type.

    Commands, options and their values, sessions, runs, operations and agents.

    \b
    source <(agentrun completion bash)        in ~/.bashrc
    source <(agentrun completion zsh)         in ~/.zshrc, after compinit
    agentrun completion fish > ~/.config/fish/completions/agentrun.fish
    """
    from agentrun.cli import configuring

    return configuring.completion(ctx.obj, shell)
