"""`new`: make a session, and say something to it at once."""

from __future__ import annotations

import os

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands import making


def new(options: Options, title: str, *, session_id: str | None, agent: str | None, text: str | None) -> int:
    """Makes a session, prints its id, and sends it a first prompt if there is one."""
    if text is not None:
        from agentrun.cli.sending import Words, read_text

        read_text(Words([text], []), "send")  # a session must not be left behind by a text that cannot be sent
    place = options.place()
    if agent is not None:
        from agentrun.commands.execution import make_order

        make_order(place, agent, None)  # says now, and not at the first prompt, that there is no such agent
    session = making.new(place.tree, title=title, session_id=session_id, agent=agent, working_directory=_here())
    if options.json:
        from agentrun.render.json import json_line

        output.out_bytes(json_line({"session": session.to_doc()}))
    else:
        output.out(f"{session.session_id}\n")
    if text is None:
        return exits.OK
    from agentrun.cli.sending import Asked, Words, send

    return send(options, session.session_id, Words([text], []), Asked())


def _here() -> str | None:
    """The working directory, for agents that run in it; None if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
