"""Listing sessions: takes no lock and writes nothing."""

from __future__ import annotations

from agentrun.errors import AgentrunError
from agentrun.records.session import Session
from agentrun.records.views import SessionRow
from agentrun.states import RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(
    tree: Tree,
    *,
    text: str = "",
    status: RunStatus | None = None,
    agent: str | None = None,
    archived: bool = False,
    on_damage: list[AgentrunError] | None = None,
) -> Iterator[SessionRow]:
    """Sessions, the one that changed last first; only those whose title or id contains `text`, and so on.

    A damaged session hides no other: its error goes to `on_damage` and the list goes on.
    """
    damage: list[AgentrunError] = [] if on_damage is None else on_damage
    for session, document in _meant(tree, text, archived, damage):
        row = _row(tree, session, document, damage)
        if row is not None and _is_so(row, status, agent):
            yield row


def first_rows(
    tree: Tree, limit: int, text: str, status: RunStatus | None, agent: str | None, archived: bool,
    on_damage: list[AgentrunError],
) -> tuple[list[SessionRow], bool]:  # fmt: skip
    """The first `limit` of `rows`, and whether there are more: of those no more is read than it takes to know."""
    found: list[SessionRow] = []
    for session, document in _meant(tree, text, archived, on_damage):
        if len(found) == limit and status is None and agent is None:
            return found, True
        row = _row(tree, session, document, on_damage)
        if row is not None and _is_so(row, status, agent):
            if len(found) == limit:
                return found, True
            found.append(row)
    return found, False


def _meant(tree: Tree, text: str, archived: bool, damage: list[AgentrunError]) -> Iterator[tuple[SessionDir, Session]]:
    """The sessions of which the document says that they may be listed: what is not listed anyway is not looked into."""
    listed = tree.lister()
    for session_id in tree.recent_ids():
        try:
            session = listed(session_id)
            document = session.read() if session is not None else None
        except AgentrunError as error:
            _note(tree, session_id, error, damage)
            continue
        if session is not None and document is not None and _is_meant(document, text, archived):
            yield session, document


def _row(tree: Tree, session: SessionDir, document: Session, damage: list[AgentrunError]) -> SessionRow | None:
    try:
        front, changed_at = session.standing(document)
        view = session.run_to_look_at(front).view() if front else None
    except AgentrunError as error:
        _note(tree, session.session_id, error, damage)
        return None
    return SessionRow(document, view, changed_at)


def _note(tree: Tree, session_id: str, error: AgentrunError, damage: list[AgentrunError]) -> None:
    # What is removed while it is read is not damaged.
    if tree.is_listed(session_id):
        damage.append(error)


def _is_meant(session: Session, text: str, archived: bool) -> bool:
    return session.archived is archived and text.casefold() in f"{session.session_id} {session.title}".casefold()


def _is_so(row: SessionRow, status: RunStatus | None, agent: str | None) -> bool:
    has_status = status is None or (row.newest is not None and row.newest.status is status)
    agents = {row.session.agent, row.newest.run.agent if row.newest else None}
    return has_status and (agent is None or agent in agents)
