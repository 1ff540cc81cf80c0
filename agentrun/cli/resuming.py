"""`resume`: go on with a run."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.audience import audience_for
from agentrun.cli.executing import collect_signals, execute_here
from agentrun.cli.family import announced_parent
from agentrun.cli.options import Options
from agentrun.commands.execution import start_detached
from agentrun.commands.names import Target, find
from agentrun.commands.resuming import Resumed
from agentrun.records.codec import Doc
from agentrun.render.json import json_line
from agentrun.render.recovering import resumed_text


def resume(options: Options, session: str, *, detach: bool) -> int:
    """Takes up or begins anew, then executes and shows the run here unless it is detached."""
    from agentrun.commands.resuming import resume as take

    place = options.place()
    target = find(place.tree, session)

    def begun_by() -> Doc | None:
        parent = announced_parent(place, target, may_begin=True, waits=not detach)
        return parent.to_doc() if parent else None

    # A run that is named by its session alone is the same one all the way.
    resumed = take(place, Target(target.session, target.run().run_id), begun_by)
    joined = Target(target.session, resumed.run_id)
    if detach:
        start_detached(place, resumed.session_id, resumed.run_id, resumed.liveness)
        _say(options, resumed, is_detached=True)
        return exits.OK
    signals = collect_signals()
    audience = audience_for(options, patient=False)
    audience.outlet.attempt(lambda: _say(options, resumed, is_detached=False))
    return execute_here(options, place, joined, resumed.liveness, audience, signals, with_report=True)


def _say(options: Options, resumed: Resumed, *, is_detached: bool) -> None:
    if options.json:
        output.out_bytes(json_line(resumed.to_doc()))
        return
    if is_detached:
        output.out(f"{resumed.session_id}/{resumed.run_id}\n")
    output.say_in_passing(resumed_text(resumed.to_doc(), output.screen_of(sys.stderr, options)))
