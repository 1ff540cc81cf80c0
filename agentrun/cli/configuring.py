"""`agents` and `config`: what is configured, and whether it works. `completion`: what a shell has to read."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.cli.shells import Shell, script
from agentrun.commands import configuration
from agentrun.errors import EXIT_CODES, UsageError
from agentrun.render.json import json_line
from agentrun.render.theme import Screen, say


def agents(options: Options, words: list[str]) -> int:
    """Lists the agents, or tries one out."""
    match words:
        case []:
            return _list(options)
        case ["check", name]:
            return _check(options, name)
        case _:
            raise UsageError("agents takes nothing, or: check NAME", hint="agentrun agents check NAME")


def config(options: Options) -> int:
    """Says what is configured, and where each of it comes from."""
    import json

    place = options.place()
    found = configuration.settings(place, root=options.root, account=options.account, config=options.config)
    if options.json:
        output.out_bytes(json_line({"settings": [setting.to_doc() for setting in found]}))
        return exits.OK
    screen = output.screen_of(sys.stdout, options)
    for setting in found:
        value = "none" if setting.value is None else json.dumps(setting.value, ensure_ascii=False, default=str)
        output.out(f"{say(setting.name, screen)} = {say(value, screen)}    # {say(setting.origin, screen)}\n")
    return exits.OK


def _list(options: Options) -> int:
    rows = configuration.agents(options.place())
    if options.json:
        output.out_bytes(b"".join(json_line(row.to_doc()) for row in rows))
        return exits.OK
    screen = output.screen_of(sys.stdout, options)
    for row in rows:
        star = "*" if row.is_default else " "
        output.out(f"{star} {say(row.name, screen)}  {say(row.kind, screen)}  {say(row.about, screen)}\n")
        if row.problem:
            output.out(_trouble(row.problem, row.hint, screen))
    if not rows:
        hint = 'configure one: agentrun config --help; or do without: --agent "command:COMMAND LINE", --agent local'
        output.note("no agent is configured", hint)
    return exits.OK


def _check(options: Options, name: str) -> int:
    from agentrun.cli.logs import mute_libraries  # here: to list them loads no `logging`

    mute_libraries()
    works = True
    screen = output.screen_of(sys.stdout, options)
    for finding in configuration.check(options.place(), name):
        works = works and finding.error is None
        if options.json:
            output.out_bytes(json_line(finding.to_doc()))
            continue
        output.out(f"{'ok ' if finding.error is None else 'NOT'}  {say(finding.what, screen)}\n")
        if finding.error is not None:
            output.out(_trouble(finding.error, finding.hint, screen))
    return exits.OK if works else EXIT_CODES["config"]


def _trouble(error: str, hint: str | None, screen: Screen) -> str:
    lines = [error, *(hint.split("\n") if hint else [])]
    return "".join(f"     {say(each, screen)}\n" for each in lines)


def completion(options: Options, shell: Shell) -> int:
    """Prints what a shell has to read."""
    text = script(shell)
    output.out_bytes(json_line({"shell": shell.value, "script": text}) if options.json else text.encode("utf-8"))
    return exits.OK
