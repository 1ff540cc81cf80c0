"""`ls`: the sessions, newest change first."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import LISTED, Options
from agentrun.commands import listing
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.records.views import SessionRow
from agentrun.render import tables
from agentrun.states import RunStatus


class Wanted(NamedTuple):
    """Which sessions `ls` lists."""

    text: str = ""
    status: RunStatus | None = None
    agent: str | None = None
    archived: bool = False
    limit: int = LISTED


def ls(options: Options, wanted: Wanted, *, is_watched: bool) -> int:
    """Lists sessions, newest change first; a list that `is_watched` is told again when it changes."""
    place = options.place()
    rows, damage, is_more = _listed(place, wanted)
    if is_watched:
        from agentrun.cli.list_watching import watch

        output.warn(options, damage)
        return watch(options, lambda: _listed(place, wanted)[0])
    if options.json:
        from agentrun.render.json import json_line, row_doc

        for row in rows:
            output.out_bytes(json_line(row_doc(row)))
    else:
        text_of = tables.grouped_text if output.is_terminal(sys.stdout) else tables.rows_text
        output.out(text_of(rows, output.screen_of(sys.stdout, options)))
    output.warn(options, damage)
    if not options.json:
        if any(row.newest is not None and row.newest.executor == "lost" for row in rows):
            output.note("take up what has lost its executor with: agentrun recover")
        if is_more:
            output.note(f"the first {wanted.limit}; there are more: --limit N")
        elif not rows and output.is_terminal(sys.stderr):
            output.note(f"nothing to list in {place.tree.root}")
    return exits.OK


def _listed(place: Place, wanted: Wanted) -> tuple[list[SessionRow], list[str], bool]:
    """The sessions, what is damaged among them, and whether there are more."""
    damage: list[AgentrunError] = []
    rows, is_more = listing.first_rows(
        place.tree, wanted.limit, wanted.text, wanted.status, wanted.agent, wanted.archived, damage
    )
    return rows, [str(error) for error in damage], is_more
