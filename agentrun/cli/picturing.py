"""`show --timeline` and `show --html`: a run against time, on the terminal or as a page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.names import Target
from agentrun.commands.outfile import new_file
from agentrun.commands.place import Place
from agentrun.commands.show import ALL, NEWEST, run_timeline
from agentrun.commands.whole import Whole, records, whole
from agentrun.render.json import json_line, timeline_line
from agentrun.render.timeline import timeline_lines

# Standard output, where a file is named.
DASH = "-"
# Lines, or pieces of one, that are printed with one call of the system.
_AT_ONCE = 100


def timeline(options: Options, place: Place, target: Target, tail: int | None, on_damage: list[str]) -> int:
    """Draws a run, or the newest runs of a session, the newest last; `tail` operations of each."""
    screen = output.screen_of(sys.stdout, options)
    is_first = True
    for record in records(place, target, on_damage, partial(run_timeline, tail=tail or ALL), newest=NEWEST):
        if options.json:
            pieces = timeline_line(record)
            while some := b"".join(islice(pieces, _AT_ONCE)):
                output.out_bytes(some)
            continue
        lines = chain(() if is_first else "\n", timeline_lines(*record, screen, time.time()))
        while text := "".join(islice(lines, _AT_ONCE)):
            output.out(text)
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
