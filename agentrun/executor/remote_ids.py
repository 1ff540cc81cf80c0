"""The `RemoteIds` of `agent.protocols`, kept in the session's document."""

from __future__ import annotations

from agentrun.records.lease import Lease
from agentrun.records.session import conversation_name
from agentrun.store.document import keep_remote_id
from agentrun.store.redo import recording
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


class StoredRemoteIds:
    """The ids of one session, for the executor that holds `lease` on the run in `run_dir`."""

    def __init__(self, session: SessionDir, run_dir: RunDir, lease: Lease) -> None:
        self._session = session
        self._run_dir = run_dir
        self._lease = lease

    def get(self, name: str) -> str | None:
        """The id under which `name` knows this session, as it is stored now."""
        return conversation_name(self._session.read().remote_ids.get(name))

    def keep(self, name: str, value: str) -> None:
        """Stores it, durable. Raises FencedOut: whoever took the run over has a conversation of its own by now."""
        with recording(self._session) as writer:
            self._run_dir.check(self._lease, writer)
            keep_remote_id(writer, name, value)
