"""How `--help` looks: every summary whole, and as wide as there is room."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import typer
import typer.core

from agentrun.cli import output
from agentrun.cli.words import COMMANDS


class Commands(typer.core.TyperGroup):
    """The group of all commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands, each with its whole summary, whether their parsers were made or not."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.about) for name, each in COMMANDS.items()])


def wrapped(head: str, text: str) -> list[str]:
    """The lines of `text` behind `head`, for a place where the lines stay as they are."""
    return textwrap.wrap(text, output.PLAIN_WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def width() -> dict[str, int]:
    """For typer: the columns of a help text that goes into a pipe. On a terminal typer finds out by itself."""
    return {} if output.is_terminal(sys.stdout) else {"terminal_width": output.PLAIN_WIDTH}
