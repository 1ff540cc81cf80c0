"""`compact`: have the history of a session summarised."""

from __future__ import annotations

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.audience import audience_for
from agentrun.cli.executing import collect_signals, execute_here
from agentrun.cli.family import announced_parent
from agentrun.cli.options import Options
from agentrun.cli.watching import watch
from agentrun.commands import compacting, control
from agentrun.commands.names import Target, find
from agentrun.render.json import json_line


def compact(options: Options, name: str, agent: str | None, *, detach: bool) -> int:
    """Begins the run that summarises, and executes it unless it is detached. Prints the run's name."""
    place = options.place()
    found = find(place.tree, name)
    parent = announced_parent(place, found, may_begin=True, waits=not detach)
    acceptance = compacting.compact(place, found, agent, parent.to_doc() if parent else None)
    accepted = acceptance.accepted
    target = Target(place.tree.session(accepted.session_id), accepted.run_id)

    def acknowledge() -> None:
        if options.json:
            output.out_bytes(json_line(accepted.to_doc()))
        else:
            output.out(f"{accepted.session_id}/{accepted.run_id}\n")

    if detach:
        control.drive_on(place, acceptance)
        acknowledge()
        return exits.OK
    signals = collect_signals() if acceptance.liveness is not None else []
    audience = audience_for(options, patient=acceptance.liveness is None)
    if acceptance.liveness is None:
        acknowledge()
        return watch(options, target, audience, with_report=False)
    audience.outlet.attempt(acknowledge)
    return execute_here(options, place, target, acceptance.liveness, audience, signals, with_report=False)
