"""Having the history of a session summarised: a run of its own, which ends without a report."""

from __future__ import annotations

from agentrun.commands.control import Acceptance, Saying, said, say
from agentrun.commands.execution import make_order
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.errors import ConfigError
from agentrun.records.codec import Doc
from agentrun.records.message import COMPACT
from agentrun.store.inbox import Order

# What the line in the conversation says; nobody has typed it.
WORDS = "summarise the history"


def compact(place: Place, target: Target, agent: str | None, parent_run: Doc | None = None) -> Acceptance:
    """Accepts the wish to have the history summarised, by `agent` or the session's own.

    `parent_run` is the call that begins the run, if it is one.

    Raises SlotTaken while a run is active, ConfigError for an agent that keeps its own history.
    """
    whole = Target(target.session, None)
    chosen = agent or target.session.read().agent
    order = lambda: _order(place, chosen)  # noqa: E731
    return say(place, whole, Saying(said(WORDS, None), order, mode=COMPACT, parent_run=parent_run))


def _order(place: Place, agent: str | None) -> Order:
    from agentrun.config import load_config

    chosen = load_config(place.config_path).agent(agent)
    if chosen.kind != "loop":
        raise ConfigError(
            f'the agent {chosen.name!r} is of kind "{chosen.kind}" and keeps its own history',
            hint="name an agent with a model: agentrun compact SESSION --agent NAME",
        )
    return make_order(place, agent, None)
