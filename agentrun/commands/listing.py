"""Listing sessions: takes no lock and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.errors import AgentrunError
from agentrun.records.views import SessionRow
from agentrun.states import RunStatus
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree


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
    for session_id in tree.recent_ids():
        try:
            session = tree.listed(session_id)
            if session is None:
                continue
            row = _row(session)
        except AgentrunError as error:
            # (What is removed while it is read is not damaged.)
            if on_damage is not None and tree.is_listed(session_id):
                on_damage.append(error)
            continue
        if _matches(row, text, status, agent, archived):
            yield row


def _row(session: SessionDir) -> SessionRow:
    document = session.read()
    active = session.active()
    newest = [active] if active else session.newest_run_ids(1)
    view = session.run(newest[0]).view() if newest and newest[0] else None
    return SessionRow(document, view, session.changed_at())


def _matches(row: SessionRow, text: str, status: RunStatus | None, agent: str | None, archived: bool) -> bool:
    session = row.session
    found = text.casefold() in f"{session.session_id} {session.title}".casefold()
    has_status = status is None or (row.newest is not None and row.newest.status is status)
    agents = {session.agent, row.newest.run.agent if row.newest else None}
    return found and has_status and (agent is None or agent in agents) and session.archived is archived
