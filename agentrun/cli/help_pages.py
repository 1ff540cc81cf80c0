"""How `--help` looks: every summary whole, and as wide as there is room."""

from __future__ import annotations

import sys
from typing import Any

import typer
import typer.core

from agentrun.cli import output

# More than any summary has: what typer would cut, a terminal that is narrow folds, and a pipe has room for.
_WHOLE = 1000


class Commands(typer.core.TyperGroup):
    """The group of all commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands, each with its whole summary."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each])


def width() -> dict[str, int]:
    """For typer: the columns of a help text that goes into a pipe. On a terminal typer finds out by itself."""
    return {} if output.is_terminal(sys.stdout) else {"terminal_width": output.PLAIN_WIDTH}
