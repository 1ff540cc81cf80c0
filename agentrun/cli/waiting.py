"""`wait`: return when runs have ended."""

from __future__ import annotations

import sys
import time

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.family import check_waits_for_others
from agentrun.cli.lateness import LateNote
from agentrun.cli.options import Options
from agentrun.commands.names import find
from agentrun.commands.show import told
from agentrun.commands.waiting import Vigil
from agentrun.config import parse_duration
from agentrun.errors import TimeRanOut
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.render.json import json_line
from agentrun.render.standing import attention_text, standing_text


def wait(options: Options, names: list[str], timeout: str | None) -> int:
    """Waits for all runs that are named; returns the code of the first that does not complete, as soon as it is known.

    Prints a line for each run: when it stands, or how it stands when there is nothing more to wait for.
    """
    seconds = parse_duration(timeout) if timeout is not None else None
    place = options.place()
    targets = [find(place.tree, name) for name in names]
    check_waits_for_others(place, targets)
    run_dirs = {run_dir.name: run_dir for run_dir in (target.run() for target in targets)}
    vigil = Vigil(list(run_dirs.values()))
    try:
        code, ran_out = _keep(options, vigil, None if seconds is None else time.monotonic() + seconds)
    finally:
        vigil.close()
    left = [told(run_dir) for run_dir in vigil.awaited]
    for view in left:
        _print(options, view)
    if ran_out:
        raise _ran_out([view.run for view in left])
    return code


def _keep(options: Options, vigil: Vigil, until: float | None) -> tuple[int, bool]:
    """Waits; the exit code, and whether the time ran out before there was one."""
    late, screen = LateNote(), output.screen_of(sys.stderr, options)
    while True:
        codes = []
        for view in vigil.look():
            _print(options, view)
            codes.append(exits.of_run(view))
        if any(codes) or not vigil.awaited:
            return next((code for code in codes if code), exits.OK), False
        for view in vigil.going_on if not options.json else ():
            output.say(late.news(view, screen))
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            return exits.OK, True
        vigil.wait(left)


def _print(options: Options, view: RunView) -> None:
    if options.json:
        output.out_bytes(json_line(view.to_doc()))
        return
    output.out(standing_text(view, output.screen_of(sys.stdout, options)))
    output.say(attention_text(view, output.screen_of(sys.stderr, options)))


def _ran_out(left: list[Run]) -> TimeRanOut:
    names = [f"{run.session_id}/{run.run_id}" for run in left]
    return TimeRanOut(
        f"the time ran out; not over: {', '.join(names)}",
        hint=f"watch it with: agentrun show -f {names[0]}",
        session_id=left[0].session_id,
        run_id=left[0].run_id,
    )
