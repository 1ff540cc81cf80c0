"""Writes `agentrun/cli/words.py`: the commands, their arguments and options, as completion needs them without typer."""

from __future__ import annotations

import json
from typing import Any

HEAD = '''"""The words of the command line, for completion: made by `make docs` from the commands and their help."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from agentrun.named import NamedTuple


class Words(NamedTuple):
    """A command: what it does, the kind of each of its arguments, and of each option the kind of value and the help."""

    about: str
    arguments: tuple[str, ...]
    options: dict[str, tuple[str, str]]


COMMANDS = {
'''

# What a word may be, by how the help calls it. Anything else is free text.
KINDS = {
    "AGENT": "agent",
    "FILE": "file",
    "DIR": "file",
    "FILE|shared:NAME": "file",
    "OP": "operation",
    "prompt": "prompt|",
    "RUN": "run",
    "SESSION": "session",
    "SESSION[/RUN]": "target",
}


def module(commands: Any) -> str:
    """The module for a group of commands."""
    return HEAD + "".join(_entry(name, command) for name, command in commands.commands.items()) + "}\n"


def _entry(name: str, command: Any) -> str:
    arguments = [kind for each in command.params if each.param_type_name == "argument" for kind in _arguments(each)]
    options = [each for each in command.params if each.param_type_name == "option"]
    about = command.get_short_help_str(limit=1000)
    lines = [f"    {_text(name)}: Words(", f"        {_text(about)},", f"        {_tuple(arguments)},", "        {"]
    lines += [
        f"            {_text(name)}: ({_text(_kind(each))}, {_text(each.help or '')}),"
        for each in options
        for name in each.opts
    ]
    return "\n".join([*lines, "        },", "    ),", ""])


def _arguments(argument: Any) -> list[str]:
    words = (argument.metavar or "").strip("[]").split(" ")
    if words[0] == "check":  # `agents [check NAME]`: the one argument that is two words
        return ["check|", "agent"]
    return [_kind(argument) + ("..." if argument.nargs == -1 else "")]


def _kind(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type
    choices = getattr(kind, "choices", None) or getattr(getattr(kind, "func", None), "choices", None)
    metavar = (parameter.metavar or "").removesuffix("...")
    if choices:
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    if metavar.startswith("[") and metavar.endswith("]"):
        metavar = metavar[1:-1]
    if metavar in KINDS:
        return KINDS[metavar]
    return metavar if "|" in metavar and metavar.replace("|", "").replace("-", "").islower() else "text"


def _tuple(items: list[str]) -> str:
    return "(" + ", ".join(map(_text, items)) + ("," if len(items) == 1 else "") + ")"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
