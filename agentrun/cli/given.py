"""What was given on a command line has to be something: an empty name is a variable of a script that is not set.

Taken as "not given", it would be the wrong thing in silence: `cancel S --op "$op"` would stop the whole run, and with
`--key "$key"` the second night's question would be the first one's repeated. Free text may be empty where it is taken.
"""

from __future__ import annotations

from typing import Any

import typer.core

from agentrun.errors import UsageError

# As the help calls them. A session that has to be named is looked for, whatever its name, and not found.
_FREE = ("TEXT", "[TEXT", "TITLE", "SESSION")


class Command(typer.core.TyperCommand):
    """A command that refuses empty names."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Raises UsageError for an option or argument that is given and empty."""
        for each in self.params:
            metavar = each.metavar or str(each.name).upper()
            if _is_empty(ctx.params.get(each.name)) and not metavar.startswith(_FREE):
                name = each.opts[0] if each.param_type_name == "option" else _bare(metavar)
                raise UsageError(f"{name} is empty", hint="give it a value, or leave it out; is a variable not set?")
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As the manual page has it: typer puts braces around what must be given, which tell nobody anything."""
        pieces = super().collect_usage_pieces(ctx)
        return [each[1:-1] if each.startswith("{") and each.endswith("}") else each for each in pieces]


def _is_empty(value: object) -> bool:
    return value == "" or (isinstance(value, list | tuple) and "" in value)


def _bare(metavar: str) -> str:
    """`SESSION[/RUN]` for `[SESSION[/RUN]]`."""
    return metavar.removeprefix("[").removesuffix("]") if metavar.startswith("[") else metavar
