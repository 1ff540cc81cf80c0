"""`cancel`: stop a run."""

from __future__ import annotations

import sys
import time

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands import control
from agentrun.commands.names import Target, find
from agentrun.commands.show import Follower
from agentrun.config import parse_duration
from agentrun.errors import TimeRanOut, UsageError
from agentrun.records.views import RunView
from agentrun.render.json import json_line
from agentrun.render.plain import attention_text, standing_text


def cancel(options: Options, name: str, reason: str, *, wait: bool, timeout: str | None) -> int:
    """Stores the intent, waits for the end if asked to, and says how the run stands."""
    if timeout is not None and not wait:
        raise UsageError("--timeout says how long to --wait", hint="agentrun cancel SESSION --wait --timeout 30s")
    seconds = parse_duration(timeout) if timeout else None
    place = options.place()
    target = find(place.tree, name)
    run_id = target.run().run_id
    view = control.cancel(place, Target(target.session, run_id), reason)
    if wait and not view.run.is_over:
        view = _wait(target, run_id, seconds)
        if view.executor == "lost":
            # It died over winding down; whoever comes next does that, and that is us.
            view = control.cancel(place, Target(target.session, run_id), reason)
    if options.json:
        output.out_bytes(json_line(view.to_doc()))
    else:
        screen = output.screen_of(sys.stdout, options)
        output.out(standing_text(view, screen))
        output.say(attention_text(view, output.screen_of(sys.stderr, options)))
    return exits.of_cancel(view)


def _wait(target: Target, run_id: str, seconds: float | None) -> RunView:
    until = None if seconds is None else time.monotonic() + seconds
    follower = Follower(Target(target.session, run_id))
    try:
        while not follower.is_over:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeRanOut(
                    f"{target.session.session_id}/{run_id} is still {follower.view.words}",
                    hint=f"watch it with: agentrun show -f {target.session.session_id}/{run_id}",
                    session_id=target.session.session_id,
                    run_id=run_id,
                )
            follower.wait(left)
            follower.step()
        return follower.view
    finally:
        follower.close()
