"""`check`: what is on disk, looked over."""

from __future__ import annotations

import sys

from agentrun.cli import output
from agentrun.cli.exit import OK
from agentrun.cli.options import Options
from agentrun.commands.checking import check as find_faults
from agentrun.commands.names import find_session
from agentrun.errors import EXIT_CODES, AgentrunError, StorageFailed
from agentrun.render.faults import finding_text
from agentrun.render.json import error_doc, json_line
from agentrun.render.plain import error_text


def check(options: Options, name: str | None, *, repair: bool) -> int:
    """Prints each finding as it is met. 11 if the disk refused a repair, 10 if anything needs attention when it is

    done, the code of whatever else kept it from repairing, else 0.
    """
    place = options.place()
    session_id = find_session(place.tree, name).session.session_id if name else None
    screen = output.screen_of(sys.stdout, options)
    found = wrong = 0
    refusals: list[AgentrunError] = []

    def refused(error: AgentrunError) -> None:
        refusals.append(error)
        _say_refused(options, error)

    for finding in find_faults(place, session_id, repair=repair, on_refusal=refused):
        found, wrong = found + 1, wrong + finding.is_wrong
        if options.json:
            output.out_bytes(json_line({"finding": finding.to_doc()}))
        else:
            output.out(finding_text(finding, screen))
    if not options.json:
        output.note(_summary(found, wrong, session_id, place.tree.root, repair))
    return _code(refusals, wrong)


def _code(refusals: list[AgentrunError], wrong: int) -> int:
    if any(isinstance(error, StorageFailed) for error in refusals):
        return EXIT_CODES["storage"]
    if wrong:
        return EXIT_CODES["damaged"]
    return refusals[0].exit_code if refusals else OK


def _say_refused(options: Options, error: AgentrunError) -> None:
    if options.json:
        output.say(json_line(error_doc(error)).decode("utf-8"))
    else:
        output.say(error_text(error, output.screen_of(sys.stderr, options)))


def _summary(found: int, wrong: int, session_id: str | None, root: str, repair: bool) -> str:
    where = session_id or root
    if not found:
        return f"nothing is wrong in {where}"
    said = f"{found} findings in {where}, {wrong} of them need attention"
    command = f"agentrun check {session_id} --repair" if session_id else "agentrun check --repair"
    return said if repair or not wrong else f"{said}; what can be put right is, with: {command}"
