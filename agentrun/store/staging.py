"""Sessions in the making, under a name that no reader looks at; published whole or not at all.

Whoever dies in between leaves a hidden directory that nothing needs, and no session that is half there. As long as
somebody works in one it is locked, so that whoever comes next can tell what may be cleared away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

from agentrun.errors import AgentrunError, CorruptRecord, Denied, NameTaken, NotFound
from agentrun.store import layout
from agentrun.store.activity import Activity
from agentrun.store.archive.packing import digest
from agentrun.store.building import name_taken
from agentrun.store.disk import Directory
from agentrun.store.locks import has_liveness, open_liveness, take_liveness
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
        made = (_make(sessions, name) for name in names)
        self._name, self.directory, self._lock = next(each for each in made if each is not None)

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()
        remove_tree(self._sessions, self._name)
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
        Raises StorageFailed, and NameTaken for one that is there and differs, before any is taken in; for one that
        another process made in that very moment, when the others are in.
        """
        wanted = list(session_ids)
        there = {name for name in wanted if self._is_there(name)}
        names = [name for name in wanted if name not in there]
        for name in names:
            _sync_all(self.directory.open(name))
        # The list is in the order of the notes: what changed last must come first again, whatever the ids are.
        ordered, late = sorted(names, key=self._changed_at), list[str]()
        for name in ordered:
            # The hint comes first, as with any new session: one that the list does not know would be lost to the eye.
            # One sync for all: who is interrupted between two of these steps has some sessions and not others.
            self._activity.note(name, durable=name == ordered[-1])
            if not self.directory.move(name, name, into=self._sessions):
                late.append(name)
        if not names:
            # Whoever put them there was perhaps cut off before it made them last.
            self._activity.sync()
        self._sessions.sync()
        # Somebody was quicker: with the same archive, which is all right, or with another session.
        other = [name for name in late if not self._is_same(name)]
        if other:
            raise _came_between(other, [name for name in wanted if name not in other])
        return frozenset(there.union(late))

    def _is_there(self, session_id: str) -> bool:
        """Whether the tree has this very session. Raises NameTaken if it has another one of that name."""
        if self._sessions.stat(session_id) is None:
            return False
        if self._is_same(session_id):
            return True
        raise name_taken(session_id, _OTHER_NAME)

    def _is_same(self, session_id: str) -> bool:
        """Whether the session of that name in the tree is byte for byte the one in here."""
        with suppress(NotFound, Denied, CorruptRecord):  # what cannot be packed is in no archive either
            return digest(self._sessions.open(session_id)) == digest(self.directory.open(session_id))
        return False

    def _changed_at(self, session_id: str) -> str:
        try:
            return self.session(session_id).changed_at()
        except AgentrunError:
            return ""  # damaged, as it was archived: that is told elsewhere


def _make(sessions: Directory, name: str) -> tuple[str, Directory, int] | None:
    """The directory of that name, new and locked; None if there is one, or somebody cleared it away before the lock."""
    if not sessions.make(name):
        return None
    with suppress(NotFound):
        directory = sessions.open(name)
        lock = take_liveness(directory)
        if lock is not None:
            found = sessions.stat(name)
            if found is not None and os.path.samestat(found, os.fstat(directory.fd)):
                return name, directory, lock
            os.close(lock)
    return None


def _came_between(names: list[str], taken: list[str]) -> NameTaken:
    error = name_taken(names[0], _OTHER_NAME)
    rest = f"; the other {len(taken)} of the archive are in" if taken else ""
    error.message = f"{', '.join(names)}: another process made a session of that name meanwhile{rest}"
    return error


def _clear_away(sessions: Directory) -> None:
    """Removes what importers that were killed have left."""
    for name in sessions.names():
        if name.startswith(_PREFIX):
            with suppress(NotFound, Denied), sessions.open(name) as left:
                # With its lock: whoever has made it just now then sees that it was taken away.
                lock = open_liveness(left)
                try:
                    if has_liveness(left, lock):
                        remove_tree(sessions, name)
                finally:
                    os.close(lock)


def _sync_all(directory: Directory) -> None:
    """Makes the names in `directory` and below it last; what its files hold lasts already."""
    for name in directory.names():
        if directory.is_directory(name):
            with directory.open(name) as below:
                _sync_all(below)
    directory.sync()
