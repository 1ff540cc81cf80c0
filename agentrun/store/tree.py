"""The tree of one account: makes sessions, finds them by name, and knows which changed last.

Only directories that belong to the process's own user are opened; another account's session is reported in the same
words as one that does not exist.
"""

from __future__ import annotations

import os

from agentrun import clock, ids
from agentrun.errors import AgentrunError, Ambiguous, Denied, NotFound, UsageError
from agentrun.records.session import Session
from agentrun.store import layout
from agentrun.store.activity import Activity
from agentrun.store.disk import Directory, speaking_of
from agentrun.store.identity import account_name, not_yours
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentrun.records.seen import Seen
    from agentrun.store.staging import Staging
    from agentrun.store.watch import Watch
    from agentrun.store.writer import Writer

LAST = "@last"
# More names than these are remembered in a tenth of the room, which takes longer.
_MANY = 1000

_SEE = "see what there is with: agentrun ls"


class Tree:
    """The sessions of `account` (default: the effective user's) under `root`. Nothing is made before it is needed."""

    def __init__(self, root: str, account: str | None = None) -> None:
        self.root = root
        self.account = account_name() if account is None else ids.checked_id(account, "account")

    def create_session(
        self, *, title: str = "", session_id: str | None = None, agent: str | None = None,
        working_directory: str | None = None,
    ) -> SessionDir:  # fmt: skip
        """A new session, durable when this returns. Raises NameTaken, Denied, StorageFailed."""
        name = ids.new_session_id() if session_id is None else ids.checked_id(session_id, "session")
        now = clock.timestamp()
        session = Session(
            name, self.account, title, agent, False, working_directory, {}, None,
            created_at=now, updated_at=now, revision=1,
        )  # fmt: skip
        return self._put(session, ())

    def fork_session(self, source: SessionDir, seq: int) -> SessionDir:
        """A new session that begins with the first `seq` messages of `source`, durable when this returns.

        Raises CorruptRecord if one of them cannot be read.
        """
        from agentrun.store import forking

        session = forking.forked(source.read(), ids.new_session_id(), seq)
        return self._put(session, forking.copied_lines(source, session.session_id, seq))

    def staging(self) -> Staging:
        """Where sessions are put together that come into the tree whole. Raises Denied, StorageFailed."""
        from agentrun.store.staging import Staging

        sessions = self._make_sessions()
        return Staging(self.account, sessions, self._activity())

    def remove_session(self, writer: Writer) -> None:
        """Takes the writer's session out of the tree, durable; `finish_removals` frees its room."""
        from agentrun.store import removal

        sessions = self._sessions()
        assert sessions is not None  # the writer's session is in it
        removal.hide(writer, sessions)

    def finish_removals(self) -> list[str]:
        """Frees the room of removed sessions, also of those whose removal was interrupted; returns what it found."""
        from agentrun.store import removal

        sessions = self._sessions()
        return [] if sessions is None else removal.finish(sessions)

    def read_shared(self, name: str, most: int) -> bytes:
        """The file `name` that the account's sessions share. Raises NotFound, Denied, UsageError above `most` bytes."""
        account = self._account()
        where = os.path.join(self.root, layout.ACCOUNTS, self.account, layout.SHARED)
        found = account.open(layout.SHARED).stat(name) if account and account.stat(layout.SHARED) else None
        if account is None or found is None:
            from shlex import quote

            hint = f"put it there with: mkdir -p {quote(where)} && cp {quote(name)} {quote(where)}/"
            raise NotFound(f"there is no {name} in {where}", hint=hint)
        if found.st_size > most:
            raise UsageError(f"{where}/{name} has {found.st_size} bytes; at most {most} can be attached")
        return account.open(layout.SHARED).read(name) or b""

    def _put(self, session: Session, lines: Iterable[bytes]) -> SessionDir:
        from agentrun.store.building import build_session, name_taken

        sessions = self._make_sessions()
        if sessions.stat(session.session_id) is not None:
            raise name_taken(session.session_id)
        # The hint comes first: a session that the list does not know would be lost to the eye.
        self._activity().note(session.session_id, durable=True)
        build_session(sessions, session, lines)
        return self.session(session.session_id)

    def session(self, session_id: str) -> SessionDir:
        """The session with exactly this id. Raises NotFound, Denied."""
        ids.checked_id(session_id, "session")
        missing = NotFound(f"there is no session {session_id} in {self.root}", hint=_SEE)
        sessions = self._sessions()
        if sessions is None or sessions.is_foreign(session_id):
            raise missing
        try:
            return self._session_in(sessions, session_id)
        except NotFound as error:
            raise missing from error

    def listed(self, session_id: str) -> SessionDir | None:
        """A session that is listed; None if it has been removed since, or is still being made.

        What lies there and cannot be opened is told as it is: whoever goes through an account of his own has listed it.
        Raises Denied.
        """
        return self.lister()(session_id)

    def lister(self) -> Callable[[str], SessionDir | None]:
        """What does the same for many of them: what they share is opened once."""
        account = self._account()
        sessions = _opened(account, layout.SESSIONS)

        def listed(session_id: str) -> SessionDir | None:
            if account is None or sessions is None:
                return None
            try:
                return SessionDir(self.account, session_id, sessions.open(session_id), Activity(account))
            except NotFound:
                return None

        return listed

    def is_listed(self, session_id: str) -> bool:
        """Whether something of that name lies among the sessions now."""
        sessions = self._sessions()
        return sessions is not None and sessions.stat(session_id) is not None

    def find(self, text: str) -> SessionDir:
        """The session that `text` means: `@last`, an id, or a unique beginning or end of one.

        Raises NotFound, Ambiguous, Denied.
        """
        if text == LAST:
            newest = next(self.recent_ids(), None)
            if newest is None:
                raise NotFound(f"there is no session in {self.root} yet", hint="make one with: agentrun new")
            return self.session(newest)
        sessions = self._sessions()
        near = "" if ids.is_id(text) else ids.near_id(text)
        is_near = bool(near) and sessions is not None and sessions.stat(near) is not None
        # What only reads like an id is proposed if there is a session of that name.
        ids.checked_id(text, "session", None if is_near else _SEE)
        if sessions is not None and sessions.stat(text) is not None:
            return self.session(text)
        return self.session(_only_match(text, self.session_ids(), self.root))

    def session_ids(self) -> list[str]:
        """The ids of all sessions, in no order."""
        return list(self._each_id())

    def _each_id(self) -> Iterator[str]:
        sessions = self._sessions()
        # What is being made begins with a dot, which no id does; what else lies there is no session.
        return filter(ids.is_id, _each_name(sessions)) if sessions is not None else iter(())

    def strangers(self) -> list[tuple[str, str]]:
        """Path and name of everything among the sessions that is none."""
        sessions = self._sessions()
        return (
            [(sessions.at(name), name) for name in sorted(sessions.names()) if not ids.is_id(name)] if sessions else []
        )

    def path_of(self, session_id: str) -> str:
        """Where the session is or would be, for messages."""
        return os.path.join(self.root, layout.ACCOUNTS, self.account, layout.SESSIONS, session_id)

    def unfinished_ids(self) -> Iterator[str]:
        """The ids of the sessions that may have a run that is not over, in no order; no history is read.

        The slot tells, by one call of the system for each session. Where it is free, the end of the conversation does:
        an input, or runs after the one that it says has ended, were left there by a crash.
        """
        sessions = self._sessions()
        for name in self._each_id() if sessions is not None else ():
            assert sessions is not None
            if self._may_be_unfinished(sessions, name):
                yield name

    def activity(self) -> Activity | None:
        """The hint of the account; None if there is no account yet."""
        account = self._account()
        return Activity(account) if account is not None else None

    def was_used(self, session_id: str) -> bool:
        """Whether something was ever said in a session of that name, there or not, as far as the hint goes back.

        That it is made is noted once, before it is there; and each message once more, before that is.
        """
        activity = self.activity()
        noted = (name for name in (activity.session_ids() if activity is not None else ()) if name == session_id)
        return next(noted, None) is not None and next(noted, None) is not None

    def noted_since(self, offset: int) -> tuple[set[str] | None, int]:
        """The ids of the sessions that were used since `noted_since` returned `offset`; see `Activity`."""
        account = self._account()
        return Activity(account).noted_since(offset) if account is not None else (set(), 0)

    def watch(self) -> Watch:
        """Tells when a session is made or something is said in one; without an account yet, when it is time to look."""
        from agentrun.store.watch import Watch

        account = self._account()
        return Watch(account) if account is not None else Watch()

    def written(self, session_ids: Iterable[str]) -> dict[str, object]:
        """Of each session something that differs once its document or its conversation was written; nothing is read."""
        sessions = self._sessions()
        return {each: _marks(sessions, each) for each in session_ids} if sessions is not None else {}

    def _may_be_unfinished(self, sessions: Directory, session_id: str) -> bool:
        try:
            session = self._session_in(sessions, session_id)
            if session.directory.stat(layout.ACTIVE) is not None:
                return True
            last = next(session.messages_backward(), None)
            if last is None:
                return False
            # What begins a summary is nobody's input, and may have its directory already.
            return last.is_input or last.begins_run or session.run_ids()[:1] not in ([], [last.run_id])
        except AgentrunError:
            return True  # whoever opens it will say what is wrong, or that it is gone; it hides no other

    def _session_in(self, sessions: Directory, session_id: str) -> SessionDir:
        return SessionDir(self.account, session_id, sessions.open(session_id), self._activity())

    def recent_ids(self) -> Iterator[str]:
        """The ids of all sessions that are there, the one that changed last first."""
        sessions = self._sessions()
        if sessions is None:
            return
        seen: set[str] | Seen = set()
        for name in self._activity().session_ids():
            if name not in seen:
                seen.add(name)
                if isinstance(seen, set) and len(seen) == _MANY:
                    from agentrun.records.seen import Seen  # here: hardly anybody asks for so many

                    seen = Seen(seen)
                if sessions.stat(name) is not None:
                    yield name
        # The hint may be lost or cut; what it does not know comes last, by its own newest record.
        rest = [(self._changed_at(sessions, name), name) for name in self._each_id() if name not in seen]
        for _, name in sorted(rest, reverse=True):
            yield name

    def _changed_at(self, sessions: Directory, session_id: str) -> str:
        try:
            return self._session_in(sessions, session_id).changed_at()
        except AgentrunError:
            return ""  # whoever opens it will say what is wrong; it hides no other

    def _activity(self) -> Activity:
        account = self._account()
        assert account is not None  # only asked where there are sessions
        return Activity(account)

    def _account(self) -> Directory | None:
        try:
            accounts = Directory.root(self.root).open(layout.ACCOUNTS, owned=False)
            return self._account_in(accounts)
        except NotFound:
            return None

    def _account_in(self, accounts: Directory) -> Directory | None:
        """The account's directory; None if it is another user's, who is answered as if it were not there.

        Raises Denied where it should be this user's own: it must not look as if nothing had been stored. NotFound.
        """
        if not accounts.is_foreign(self.account):
            return accounts.open(self.account)
        if self.account != account_name():
            return None
        raise not_yours(accounts, self.account)

    def _sessions(self) -> Directory | None:
        return _opened(self._account(), layout.SESSIONS)

    def _make_sessions(self) -> Directory:
        _make_root(self.root)
        root = Directory.root(self.root)
        root.make(layout.ACCOUNTS)
        accounts = root.open(layout.ACCOUNTS, owned=False)
        if accounts.stat(self.account) is not None:
            self._account_in(accounts)  # says best what lies there
        account = accounts.ensure(self.account)
        sessions = account.ensure(layout.SESSIONS)
        # Also what was there: another process may have made it and not have come to sync it.
        for directory in (account, accounts, root):
            directory.sync()
        return sessions


def _marks(sessions: Directory, session_id: str) -> object:
    try:
        with sessions.open(session_id) as session:
            stats = [session.stat(name) for name in (layout.SESSION, layout.MESSAGES)]
    except AgentrunError as error:
        return type(error)  # it was removed, or whoever reads it will say what is wrong
    return [(found.st_mtime_ns, found.st_size) if found else None for found in stats]


def _opened(directory: Directory | None, name: str) -> Directory | None:
    try:
        return directory.open(name) if directory is not None else None
    except NotFound:
        return None


def _each_name(directory: Directory) -> Iterator[str]:
    """The names in there one by one, for as many as there are."""
    with speaking_of(directory.path):
        # By a descriptor of its own: one that several read from gives each of them a part.
        fd = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fd)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    yield entry.name
        finally:
            os.close(fd)


def _make_root(root: str) -> None:
    """Makes `root` and what is missing above it, private and durable."""
    path, missing = os.path.abspath(root), []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        with speaking_of(path):
            try:  # noqa: SIM105 - to load `contextlib` costs as much as all else that making a session does
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
        try:
            with Directory.root(os.path.dirname(path)) as parent:
                parent.sync()
        except Denied:
            continue  # a directory that may be written into and not read can be synced by nobody


def _no_session(name: str, root: str) -> NotFound:
    return NotFound(f"there is no session {name} in {root}", hint=_SEE)


def _only_match(text: str, names: Iterable[str], root: str) -> str:
    prefixed = ids.SESSION_PREFIX + text
    matches = sorted(name for name in names if name.startswith((text, prefixed)) or name.endswith(text))
    if not matches:
        raise _no_session(text, root)
    if len(matches) > 1:
        raise Ambiguous(
            f"{text} can mean {len(matches)} sessions",
            matches,
            hint="give more of the id",
        )
    return matches[0]
