"""The commands that one command line can mean: typer makes the parser of each, which for all takes as long as the rest.

So where a line begins with the name of a command, only that one is made, and none for the list of all commands, whose
names and summaries are in `words`. Any other line, such as a name that is mistyped, is answered by all of them.
"""

from __future__ import annotations

import copy

import typer
from typer.main import get_command_name

from agentrun.cli.app import app
from agentrun.cli.given import Command

# What is answered by the names of all commands and needs the parser of none.
_ASK_FOR_ALL = (["--help"], ["-h"])


def command_for(words: list[str]) -> typer.core.TyperGroup:
    """The group of the commands that `words` can mean."""
    for each in _registered():
        each.cls = Command
    named = [each for each in _registered() if words and _name_of(each) == words[0]]
    chosen = app
    if named or words in _ASK_FOR_ALL:
        chosen = copy.copy(app)
        chosen.registered_commands, chosen.registered_groups = named, []
    return typer.main.get_group(chosen)


def _registered() -> list[typer.models.CommandInfo]:
    """What `app` and the groups of commands that were added to it offer."""
    groups = [each.typer_instance for each in app.registered_groups if each.typer_instance is not None]
    return [command for each in (app, *groups) for command in each.registered_commands]


def _name_of(command: typer.models.CommandInfo) -> str | None:
    return command.name or (get_command_name(command.callback.__name__) if command.callback else None)
