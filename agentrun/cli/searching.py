"""`search`: where something was said."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.names import find_session
from agentrun.commands.searching import search as found_in
from agentrun.records.views import Hit
from agentrun.render.found import hit_text
from agentrun.render.json import json_line


def search(options: Options, text: str, session: str | None, limit: int | None) -> int:
    """Prints each place as soon as it is found; 0 whether there is any."""
    tree = options.place().tree
    only = find_session(tree, session).session if session is not None else None
    screen = output.screen_of(sys.stdout, options)
    count = 0
    for entry in found_in(tree, text, only):
        if not isinstance(entry, Hit):
            output.warn(options, [str(entry)])
            continue
        output.out_bytes(json_line(entry.to_doc()) if options.json else hit_text(entry, screen).encode("utf-8"))
        count += 1
        if count == limit:
            break
    if not count and not options.json and output.is_terminal(sys.stderr):
        output.note(f"nothing found in {tree.root if only is None else only.session_id}")
    return exits.OK
