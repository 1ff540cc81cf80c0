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
    listed = tree.lister()
    for session_id in tree.recent_ids():
        try:
            session = listed(session_id)
            document = session.read() if session is not None else None
            # What is not listed anyway is not looked into.
            if session is None or document is None or not _is_meant(document, text, archived):
                continue
            row = _row(session, document)
        except AgentrunError as error:
            # (What is removed while it is read is not damaged.)
            if on_damage is not None and tree.is_listed(session_id):
                on_damage.append(error)
            continue
        if _is_so(row, status, agent):
            yield row


def _row(session: SessionDir, document: Session) -> SessionRow:
    front = session.front(document)
    view = session.run(front).view() if front else None
    return SessionRow(document, view, session.changed_at(document))


def _is_meant(session: Session, text: str, archived: bool) -> bool:
    return session.archived is archived and text.casefold() in f"{session.session_id} {session.title}".casefold()


def _is_so(row: SessionRow, status: RunStatus | None, agent: str | None) -> bool:
    has_status = status is None or (row.newest is not None and row.newest.status is status)
    agents = {row.session.agent, row.newest.run.agent if row.newest else None}
    return has_status and (agent is None or agent in agents)
