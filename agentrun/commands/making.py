"""Making sessions."""

from __future__ import annotations

from agentrun.records.session import Session
from agentrun.store.tree import Tree


def new(tree: Tree, *, title: str, session_id: str | None, agent: str | None, working_directory: str | None) -> Session:
    """Makes a session. Raises NameTaken, Denied, StorageFailed."""
    made = tree.create_session(title=title, session_id=session_id, agent=agent, working_directory=working_directory)
    return made.read()
