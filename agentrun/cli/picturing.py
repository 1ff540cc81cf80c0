"""`show --timeline` and `show --html`: a run against time, on the terminal or as a page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.names import Target
from agentrun.commands.outfile import new_file
from agentrun.commands.place import Place
from agentrun.commands.show import ALL, NEWEST
from agentrun.commands.whole import Whole, records, whole
from agentrun.render.json import json_line, timeline_doc
from agentrun.render.timeline import timeline_text

# Standard output, where a file is named.
DASH = "-"


def timeline(options: Options, place: Place, target: Target, tail: int | None, on_damage: list[str]) -> int:
    """Draws a run, or the newest runs of a session, the newest last; `tail` operations of each."""
    screen = output.screen_of(sys.stdout, options)
    is_first = True
    for record in records(place, target, on_damage, tail=tail or ALL, newest=NEWEST):
        if options.json:
            output.out_bytes(json_line(timeline_doc(record)))
            continue
        output.out(("" if is_first else "\n") + timeline_text(*record, screen, time.time()))
        is_first = False
    if is_first and not options.json:
        output.note(
            f"{target.session.session_id} has no run yet",
            f"begin one with: agentrun send {target.session.session_id} TEXT",
        )
    return exits.OK


def html(options: Options, place: Place, target: Target, path: str, on_damage: list[str], *, overwrite: bool) -> int:
    """Writes a page with all of a session or run to `path`, and says so."""
    found = whole(place, target, on_damage)
    if path == DASH:
        for piece in page_bytes(found):
            output.out_bytes(piece)
        return exits.OK
    with new_file(path, overwrite=overwrite) as file:
        size = sum(file.write(piece) for piece in page_bytes(found))
    if options.json:
        output.out_bytes(json_line({"file": path, "bytes": size}))
    else:
        output.note(f"wrote {path} ({size:,} bytes)", "open it in any browser")
    return exits.OK


def page_bytes(found: Whole) -> Iterator[bytes]:
    """The page in pieces."""
    from agentrun.render.html import page

    return (piece.encode("utf-8") for piece in page(*found, time.time()))
