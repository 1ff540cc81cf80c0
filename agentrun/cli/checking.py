"""`check`: what is on disk, looked over."""

from __future__ import annotations

import sys

from agentrun.cli import output
from agentrun.cli.exit import OK
from agentrun.cli.options import Options
from agentrun.commands.checking import check as find_faults
from agentrun.commands.names import find_session
from agentrun.errors import EXIT_CODES
from agentrun.render.faults import finding_text
from agentrun.render.json import json_line


def check(options: Options, name: str | None, *, repair: bool) -> int:
    """Prints each finding as it is met. 10 if anything needs attention when it is done, else 0."""
    place = options.place()
    session_id = find_session(place.tree, name).session.session_id if name else None
    screen = output.screen_of(sys.stdout, options)
    found = wrong = 0
    for finding in find_faults(place, session_id, repair=repair):
        found, wrong = found + 1, wrong + finding.is_wrong
        if options.json:
            output.out_bytes(json_line({"finding": finding.to_doc()}))
        else:
            output.out(finding_text(finding, screen))
    if not options.json:
        output.note(_summary(found, wrong, session_id, place.tree.root, repair))
    return EXIT_CODES["damaged"] if wrong else OK


def _summary(found: int, wrong: int, session_id: str | None, root: str, repair: bool) -> str:
    where = session_id or root
    if not found:
        return f"nothing is wrong in {where}"
    said = f"{found} findings in {where}, {wrong} of them need attention"
    command = f"agentrun check {session_id} --repair" if session_id else "agentrun check --repair"
    return said if repair or not wrong else f"{said}; what can be put right is, with: {command}"
