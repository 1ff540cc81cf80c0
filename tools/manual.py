"""Writes the manual page, `docs/agentrun.1`, from the commands: `man agentrun` and `--help` say the same."""

from __future__ import annotations

import re
from typing import Any

from agentrun import __version__
from agentrun.cli.options import COMMON
from agentrun.errors import exit_table

ABOUT = "sessions and runs of AI agents on a plain directory tree"
DESCRIPTION = """\
A session is a conversation, a run is one execution of one request in it. Both are kept in plain files: every step of a
run is recorded, so that it can be watched, steered, answered, stopped and taken up again, and read afterwards.

SESSION may be an id, any unique beginning or end of one, or @last, the session that changed last. SESSION/3 is its
run-3; a session alone means its active run, else its newest."""
FILES = [
    ("ROOT/agentrun.toml", "the configuration: agents, models, tools"),
    ("ROOT/accounts/ACCOUNT/sessions/SESSION/messages.jsonl", "the conversation, appended in order"),
    ("ROOT/accounts/ACCOUNT/sessions/SESSION/runs/RUN/operations.jsonl", "every event of a run: the record"),
    ("ROOT/accounts/ACCOUNT/sessions/SESSION/runs/RUN/report.md", "the report, once the run has completed"),
    ("ROOT/accounts/ACCOUNT/sessions/SESSION/runs/RUN/cancel", "touch this file to stop the run"),
]
ENVIRONMENT = [
    ("AGENTRUN_ROOT", "the tree, where --root names none"),
    ("AGENTRUN_CONFIG", "the configuration, where --config names none"),
    ("NO_COLOR", "if it is not empty: no colour"),
]


def page(commands: Any) -> str:
    """The page for a group of commands, in the macros of man(7)."""
    lines = [
        '.\\" Made by `make docs`; not to be edited.',
        f'.TH AGENTRUN 1 "" "agentrun {__version__}" "User Commands"',
        ".SH NAME",
        f"agentrun \\- {_text(ABOUT)}",
        ".SH SYNOPSIS",
        ".B agentrun",
        ".I COMMAND",
        "[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(DESCRIPTION),
        ".SH OPTIONS OF EVERY COMMAND",
        "Before or after its name.",
        *_items([(f"{each.name} {each.metavar}".strip(), each.about) for each in COMMON]),
        ".SH COMMANDS",
    ]
    for name, command in commands.commands.items():
        lines += _command(name, command)
    lines += [
        ".SH EXIT STATUS",
        *_items([(f"{code}  {word}".strip(), meaning) for code, word, meaning in exit_table()]),
    ]
    lines += [".SH ENVIRONMENT", *_items(ENVIRONMENT), ".SH FILES", *_items(FILES)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["agentrun", name, *map(_usage, arguments)])
    lines = [f'.SS "{_text(usage)}"', *_paragraphs(command.help)]
    return lines + _items([*((_name(each), each.help or "") for each in arguments), *map(_option, options)])


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _usage(argument: Any) -> str:
    return _name(argument) if argument.required or _name(argument).startswith("[") else f"[{_name(argument)}]"


def _option(option: Any) -> tuple[str, str]:
    names = ", ".join(option.opts)
    default = "" if option.is_flag or option.default in (None, "") else f" (default: {option.default})"
    return f"{names} {option.metavar or ''}".strip(), f"{option.help or ''}{default}"


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text; one that begins with \\b stays as it is."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines += [".PP"] if lines else []
        if paragraph.startswith("\b"):
            lines += [".RS 4", ".nf", *map(_text, paragraph.removeprefix("\b").strip("\n").split("\n")), ".fi", ".RE"]
        else:
            lines.append(_text(" ".join(paragraph.split())))
    return lines


def _items(items: list[tuple[str, str]]) -> list[str]:
    return [line for name, about in items for line in (".TP", f"\\fB{_text(name)}\\fR", _text(about))]


def _text(text: str) -> str:
    """Text in which roff finds nothing to do."""
    plain = (
        text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
