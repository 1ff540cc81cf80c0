"""The names that a shell may complete: sessions, runs, operations, agents. Reads little, writes nothing.

A shell asks at each press of a key, so nothing here reads a history, and what is damaged or missing has no names.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun import ids
from agentrun.commands.names import find
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import LAST, Tree

# Nobody reads a longer list; whoever wants an older session types more of its id.
MOST = 100
# The model that needs no configuration.
_ALWAYS = "local"


class Name(NamedTuple):
    """A name, and what it stands for in a few words."""

    text: str
    about: str = ""


def session_names(tree: Tree, begun: str) -> Iterator[Name]:
    """The sessions whose id begins so, with or without `session-`, and `@last`; the one that was made last first."""
    if LAST.startswith(begun):
        yield Name(LAST, "the session that changed last")
    if begun.startswith("@"):
        return
    try:
        found = _ids(tree, begun)
    except AgentrunError:
        return
    for session_id, text in found:
        yield Name(text, _title(tree, session_id))


def _ids(tree: Tree, begun: str) -> list[tuple[str, str]]:
    """Each id that matches, and what of it is typed."""
    # By their ids, which say when they were made: which one changed last may take a look into each.
    every = sorted(tree.session_ids(), reverse=True)
    full = [(each, each) for each in every if each.startswith(begun)]
    short = [(each, each.removeprefix(ids.SESSION_PREFIX)) for each in every]
    return (full or [(each, text) for each, text in short if text.startswith(begun)])[:MOST]


def _title(tree: Tree, session_id: str) -> str:
    try:
        return tree.session(session_id).read().title
    except AgentrunError:
        return ""


def run_names(tree: Tree, session: str, begun: str) -> Iterator[Name]:
    """The runs of a session that begin so, the newest first; `1` begins `run-1` too."""
    try:
        found = tree.find(session)
        newest = found.newest_run_ids(MOST)
    except AgentrunError:
        return
    for run_id in newest:
        number = str(ids.run_number(run_id))
        if run_id.startswith(begun) or number.startswith(begun):
            yield Name(run_id if run_id.startswith(begun) else number, _status(found, run_id))


def _status(session: SessionDir, run_id: str) -> str:
    try:
        return session.run(run_id).load().status.value
    except AgentrunError:
        return ""


def operation_names(tree: Tree, target: str, begun: str) -> Iterator[Name]:
    """The operations of a run that go on, wait for an approval, or are unresolved."""
    try:
        run = find(tree, target).run().load()
    except AgentrunError:
        return
    for operation in (*run.open_operations, *run.unresolved_operations):
        if operation.operation_id.startswith(begun):
            yield Name(operation.operation_id, f"{operation.name}, {operation.status.value}")


def agent_names(place: Place, begun: str) -> Iterator[Name]:
    """The agents of the configuration, and the one that is there without any."""
    for name, about in {_ALWAYS: "a small model on this machine", **_configured(place.config_path)}.items():
        if name.startswith(begun):
            yield Name(name, about)


def _configured(path: str | None) -> dict[str, str]:
    """By name, the kind or the model of each agent. Not through `config`: that reads and checks all there is."""
    import tomllib

    from agentrun.config.files import file_bytes

    try:
        agents = tomllib.loads(file_bytes(path).decode("utf-8")).get("agents", {}) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    tables = agents.items() if isinstance(agents, dict) else ()
    return {
        name: str(table.get("model") or table.get("kind") or "") for name, table in tables if isinstance(table, dict)
    }
