"""Models, tools and agents that other packages bring, found by their entry points and loaded when one is used.

A package declares them in its pyproject.toml:

    [project.entry-points."agentrun.models"]
    parrot = "parrot_package:make_model"        # model = "parrot:NAME"     (ModelSettings) -> Model

    [project.entry-points."agentrun.tools"]
    clock = "clock_package:make_tool"           # [tools.X] kind = "clock"  (ToolSettings) -> Tool

    [project.entry-points."agentrun.agents"]
    writer = "writer_package:make_agent"        # [agents.X] kind = "writer" (AgentSettings) -> Agent

What goes wrong in one is an error of the configuration that names it, and touches no agent that does not use it.
"""

from __future__ import annotations

from agentrun.adapters.surroundings import Surroundings
from agentrun.config import nearest
from agentrun.errors import ConfigError
from agentrun.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeVar

    from agentrun.agent.protocols import ToolSpec

    T = TypeVar("T")

MODELS, TOOLS, AGENTS = "agentrun.models", "agentrun.tools", "agentrun.agents"


class ToolSettings(NamedTuple):
    """What a tool of a plug-in is made from: `settings` is the table of that name, `directory` the configuration's.

    The tool has to call itself `spec.name`; it keeps to `spec.timeout` itself.
    """

    spec: ToolSpec
    settings: Mapping[str, Any]
    directory: str
    surroundings: Surroundings


class AgentSettings(NamedTuple):
    """What an agent of a plug-in is made from; `settings` and `directory` as those of a tool."""

    name: str
    settings: Mapping[str, Any]
    directory: str
    surroundings: Surroundings


def names(group: str) -> list[str]:
    """The plug-ins there are, without loading any."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=group)})


def make(group: str, name: str, settings: Any, kind: type[T], *, user: str, built_in: Iterable[str] = ()) -> T:
    """What the plug-in `name` makes of `settings`, for `user`, which is named in errors.

    Raises ConfigError if there is no such plug-in, it cannot be loaded, or what it makes is no `kind`.
    """
    from importlib.metadata import entry_points

    points = list(entry_points(group=group, name=name))
    if not points:
        known = [*built_in, *names(group)]
        raise ConfigError(
            f"{user}: there is no {name!r}{nearest(name, known)}", hint=f"there are: {', '.join(known) or 'none'}"
        )
    place = f"{user}: the plug-in {name!r} ({points[0].value})"
    try:
        made = points[0].load()(settings)
    except ConfigError:
        raise
    except Exception as error:
        # Foreign code: whatever it raises, it is this plug-in that cannot be used, and nothing else.
        raise ConfigError(f"{place} cannot be used: {type(error).__name__}: {error}") from error
    if not isinstance(made, kind):
        raise ConfigError(f"{place} made a {type(made).__name__}, which is no {kind.__name__}")
    return made
