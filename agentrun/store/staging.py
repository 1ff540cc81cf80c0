"""Sessions in the making, under a name that no reader looks at; published whole or not at all.

Whoever dies in between leaves a hidden directory that nothing needs, and no session that is half there. As long as
somebody works in one it is locked, so that whoever comes next can tell what may be cleared away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

from agentrun.errors import AgentrunError, CorruptRecord, Denied, NotFound
from agentrun.store import layout
from agentrun.store.activity import Activity
from agentrun.store.archive.packing import digest
from agentrun.store.building import name_taken
from agentrun.store.disk import Directory
from agentrun.store.locks import is_executor_alive, take_liveness
from agentrun.store.removal import remove_tree
from agentrun.store.sessions import SessionDir

_PREFIX = f"{layout.UNFINISHED_PREFIX}import-"
_OTHER_NAME = (
    "take it in under another name: agentrun import FILE --as ID; "
    "several sessions at once go into another tree: agentrun import FILE --root DIR"
)


class Staging:
    """A hidden directory among `sessions`; what was not published is removed when the block ends."""

    def __init__(self, account: str, sessions: Directory, activity: Activity) -> None:
        self.account = account
        self._sessions = sessions
        self._activity = activity
        _clear_away(sessions)
        names = (f"{_PREFIX}{os.getpid()}-{number}" for number in count(1))
        self._name = next(name for name in names if sessions.make(name))
        self.directory = sessions.open(self._name)
        self._lock = take_liveness(self.directory)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()
        remove_tree(self._sessions, self._name)
        if self._lock is not None:
            os.close(self._lock)

    def check_free(self, session_id: str) -> None:
        """Raises NameTaken if there is a session of that name."""
        if self._sessions.stat(session_id) is not None:
            raise name_taken(session_id, _OTHER_NAME)

    def session(self, session_id: str) -> SessionDir:
        """A session that was put together in here. Raises NotFound."""
        return SessionDir(self.account, session_id, self.directory.open(session_id), self._activity)

    def told(self, text: str) -> str:
        """`text` about something in here as it will be true once it is published."""
        return text.replace(f"/{self._name}/", "/")

    def publish(self, session_ids: Iterable[str]) -> frozenset[str]:
        """Takes the sessions into the tree, durable, each in one step; returns those that were there already.

        One that is there byte for byte is passed over: whoever was interrupted in here only has to repeat it.
        Raises StorageFailed, and NameTaken for one that is there and differs, before any is taken in.
        """
        wanted = list(session_ids)
        there = frozenset(name for name in wanted if self._is_there(name))
        names = [name for name in wanted if name not in there]
        for name in names:
            _sync_all(self.directory.open(name))
        # The list is in the order of the notes: what changed last must come first again, whatever the ids are.
        ordered = sorted(names, key=self._changed_at)
        for name in ordered:
            # The hint comes first, as with any new session: one that the list does not know would be lost to the eye.
            # One sync for all: who is interrupted between two of these steps has some sessions and not others.
            self._activity.note(name, durable=name == ordered[-1])
            if not self.directory.move(name, name, into=self._sessions):
                raise name_taken(name, _OTHER_NAME)
        if not names:
            # Whoever put them there was perhaps cut off before it made them last.
            self._activity.account.sync_file(layout.ACTIVITY)
        self._sessions.sync()
        return there

    def _is_there(self, session_id: str) -> bool:
        """Whether the tree has this very session. Raises NameTaken if it has another one of that name."""
        if self._sessions.stat(session_id) is None:
            return False
        staged = digest(self.directory.open(session_id))
        with suppress(NotFound, Denied, CorruptRecord):  # what cannot be packed is in no archive either
            if digest(self._sessions.open(session_id)) == staged:
                return True
        raise name_taken(session_id, _OTHER_NAME)

    def _changed_at(self, session_id: str) -> str:
        try:
            return self.session(session_id).changed_at()
        except AgentrunError:
            return ""  # damaged, as it was archived: that is told elsewhere


def _clear_away(sessions: Directory) -> None:
    """Removes what importers that were killed have left."""
    for name in sessions.names():
        if name.startswith(_PREFIX):
            with suppress(NotFound, Denied), sessions.open(name) as left:
                if not is_executor_alive(left):
                    remove_tree(sessions, name)


def _sync_all(directory: Directory) -> None:
    """Makes the names in `directory` and below it last; what its files hold lasts already."""
    for name in directory.names():
        if directory.is_directory(name):
            with directory.open(name) as below:
                _sync_all(below)
    directory.sync()
