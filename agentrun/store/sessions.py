"""One session on disk: its document, its conversation, its runs and its slot.

Reading needs no lock. Writing needs a `Writer`, which only `store.redo.writing` gives out: the session's lock is held
then, and what a crashed writer left half done has been completed.
"""

from __future__ import annotations

import os
from itertools import chain

from agentrun import ids
from agentrun.errors import CorruptRecord, NotFound, SessionHeld
from agentrun.records.codec import Doc, check_replaceable, check_version, decode
from agentrun.records.message import COMPACT, ENDED, PROMPT, QUESTION, REPORT, Message
from agentrun.records.session import Session
from agentrun.store import layout
from agentrun.store.activity import Activity
from agentrun.store.disk import Directory
from agentrun.store.log import Damage, Log, Torn
from agentrun.store.reading import RunReader, slot_holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.records.run import Run
    from agentrun.store.locks import session_lock
    from agentrun.store.runs import RunDir

# As many of the last messages are decoded one after the other before it is looked for some kind of them in the bytes:
# where little is said to a run, its prompt is among them, and nothing has to be loaded for that.
_NEAR = 10


class SessionDir:
    """A session's directory. Handles may be shared by threads that read, not by threads that write."""

    def __init__(self, account: str, session_id: str, directory: Directory, activity: Activity) -> None:
        self.account = account
        self.session_id = session_id
        self.directory = directory
        self.activity = activity
        self.messages = Log(directory, layout.MESSAGES, must_exist=True)
        # The session as it is found from within it: an executor looks for it in each hold of the lock.
        self._own_place = f"{os.pardir}/{session_id}"
        # Until when, by time.monotonic(), the lock is waited for through this handle; None: as long as `holders` says.
        self.patient_until: float | None = None

    def another(self) -> SessionDir:
        """A handle of its own, for another thread."""
        return SessionDir(self.account, self.session_id, self.directory.another(), self.activity)

    def read(self) -> Session:
        """The session's document. Raises CorruptRecord if it is none or another session's.

        Raises NewerFormat if it is of a newer format in which it cannot be recognised.
        """
        path = self.directory.at(layout.SESSION)
        data = self.directory.read(layout.SESSION)
        if data is None:
            raise CorruptRecord(f"{path} is missing", path=path, offset=0, hint=self._made_again_with())
        doc: Doc = {}
        try:
            doc = decode(data)
            session = Session.from_doc(doc)
        except ValueError as error:
            check_version(doc, path, "it cannot be read here")
            hint = self._made_again_with()
            raise CorruptRecord(f"{path}: {error}", path=path, offset=0, hint=hint) from error
        if (session.session_id, session.account_id) != (self.session_id, self.account):
            raise CorruptRecord(
                f"{path} is about {session.account_id}/{session.session_id}, not {self.account}/{self.session_id}",
                path=path,
                offset=0,
            )
        return session

    def _made_again_with(self) -> str:
        return f"make it again, from what else is there, with: agentrun check {self.session_id} --repair"

    def check_writable(self) -> None:
        """Raises NewerFormat if the session, or its summary, is of a format that this version must not write."""
        self.check_recordable()
        # A run may have to write a new one at any time.
        check_replaceable(self.directory.read(layout.SUMMARY), self.directory.at(layout.SUMMARY))

    def check_recordable(self) -> None:
        """Raises NewerFormat if the session itself is of a newer format: nothing at all is written into it."""
        check_version(self.read().to_doc(), self.directory.at(layout.SESSION))

    def locked(self) -> session_lock:
        """Holds the session's lock. For `store.redo`; everyone else uses `writing` from there.

        Raises SessionHeld or LockHeld if somebody has it who does not let go, TimeRanOut if that takes too long.
        """
        from agentrun.store.holders import Patience, looks_until
        from agentrun.store.locks import session_lock

        patience = Patience(self.session_id, self.directory, self.patient_until)

        def on_wait() -> None:
            patience.check_time()
            self.refuse_frozen()
            if not self._is_held_by_executor():
                patience.look()

        return session_lock(self.directory, on_wait, self.check_in_place, looks_until(self.patient_until))

    def runs(self) -> Directory:
        """The directory of the runs, which was made with the session. Raises CorruptRecord if it was lost."""
        try:
            return self.directory.open(layout.RUNS)
        except NotFound as error:
            found = os.fstat(self.directory.fd)
            self.check_in_place((found.st_dev, found.st_ino))
            path = self.directory.at(layout.RUNS)
            raise CorruptRecord(f"{path} is missing", path=path, offset=0) from error

    def check_in_place(self, opened: tuple[int, int]) -> None:
        """Raises NotFound if whoever held the lock before has removed it; what was written now would be lost."""
        found = self.directory.stat(self._own_place)
        if found is None or (found.st_dev, found.st_ino) != opened:
            raise NotFound(f"{self.session_id} has been removed", session_id=self.session_id)

    def refuse_frozen(self) -> None:
        """Raises SessionHeld if whoever holds the session's lock is an executor that does not respond.

        It would be waited for until somebody ends it. Anybody else is only slow.
        """
        from agentrun.store.locks import lock_holder

        run_id = self.active()
        if run_id is None:
            return
        run_dir = self.run(run_id)
        lease = run_dir.lease()
        if lease is None or run_dir.executor_of(run_dir.load()) != "frozen":
            return
        if lock_holder(self.directory) in (None, lease.owner.pid) and lease.owner.pid != os.getpid():
            raise SessionHeld(
                f"{self.session_id} is held by the executor of {run_id}, {lease.owner}, which does not respond",
                hint="take its run over with: agentrun recover",
                session_id=self.session_id,
                run_id=run_id,
            )

    def _is_held_by_executor(self) -> bool:
        """Whether it is the active run's executor, which is slow then; if it does not respond, its lease will tell."""
        from agentrun.store.locks import lock_holder

        run_id = self.active()
        if run_id is None:
            return False
        run_dir = self.run(run_id)
        lease = run_dir.lease()
        is_its = lease is not None and lease.owner.pid == lock_holder(self.directory)
        return is_its and run_dir.executor_of(run_dir.load()) == "alive"

    def message(self, doc: Doc) -> Message:
        """The message in a decoded line of this session. Raises ValueError if it is none, or another session's."""
        message = Message.from_doc(doc)
        if message.session_id != self.session_id:
            raise ValueError(f"belongs to session {message.session_id[:80]!r}")
        return message

    def messages_backward(self) -> Iterator[Message]:
        """The session's messages, newest first."""
        return self.messages.backward(self.message)

    def messages_since(self, seq: int, end: int | None = None) -> Iterator[Message]:
        """The session's messages numbered `seq` or more, oldest first; those before byte `end` of the log."""
        from agentrun.store.bulk import records

        start = self.messages.offset_of(seq) if seq > 1 else 0
        found = records(self.messages, self.message, self._many, start, end)
        if seq <= 1:
            return found
        return (message for message in found if message.seq >= seq)

    def lasting_messages(self, since: int = 1) -> Iterator[Message]:
        """The same, but only what lasts through a power cut: for what is told to somebody."""
        start = self.messages.offset_of(since) if since > 1 else 0
        from agentrun.store.bulk import lasting_records

        found = lasting_records(self.messages, self.message, self._many, start)
        return (message for message in found if message.seq >= since) if since > 1 else found

    def every_entry(self) -> Iterator[tuple[int, Message | Damage | Torn]]:
        """Everything that stands in the conversation's log, each with the offset behind it."""
        from agentrun.store.bulk import entries

        return entries(self.messages, self.message, self._many)

    def _many(self, lines: bytes) -> list[Message] | None:
        from agentrun.records.in_bulk import messages_in  # here: see there

        return messages_in(lines, self.session_id, self.message)

    def message_at(self, seq: int) -> Message | None:
        """The message numbered `seq`, if it can be read."""
        return next((message for message in self.messages_since(seq) if message.seq == seq), None)

    def tail(self, count: int) -> list[Message]:
        """The last `count` messages, oldest first."""
        newest = self.messages_backward()
        return [message for message, _ in zip(newest, range(count), strict=False)][::-1]

    def messages_of(self, run_id: str, since: int) -> Iterator[Message]:
        """The messages of `run_id` numbered `since` or more, newest first."""
        for message in self.messages_backward():
            if message.seq < since:
                return
            if message.run_id == run_id:
                yield message

    def messages_with(
        self, modes: tuple[str, ...], since: int, newest_first: Iterator[Message] | None = None
    ) -> Iterator[Message]:
        """The messages of these modes numbered `since` or more, newest first; of the others hardly any is decoded.

        `newest_first` are all messages, if they are being read already.
        """
        # Most of the time it is among the last ones.
        for count, message in enumerate(newest_first or self.messages_backward(), 1):
            if message.seq < since:
                return
            if message.mode in modes:
                yield message
            if count == _NEAR:
                break
        else:
            return
        from agentrun.store.looking import newest_with

        seen = message.seq
        start = self.messages.offset_of(since) if since > 1 else 0
        for message in newest_with(self.messages, self.message, modes, start):
            if since <= message.seq < seen and message.mode in modes:
                yield message

    def prompts(
        self, document: Session | None = None, newest_first: Iterator[Message] | None = None
    ) -> Iterator[Message]:
        """The lines that began runs of this session, newest first.

        `document` is the session's, if it was read, and `newest_first` its messages, if they are being read.
        """
        # Copied lines of a fork name runs of the session they come from.
        since = (document or self.read()).copied + 1
        found = self.messages_with((PROMPT, COMPACT), since, newest_first)
        return (message for message in found if message.begins_run)

    def newest_prompt(self) -> Message | None:
        """The last line that began a run: its run is the newest, and its `accept.behind` names the open ones then."""
        return next(self.prompts(), None)

    def prompt_of(self, run_id: str) -> Message | None:
        """The prompt that began `run_id`."""
        number = ids.run_number(run_id) or 0
        for message in self.prompts():
            if message.run_id == run_id:
                return message
            if number > (ids.run_number(message.run_id) or 0):
                return None
        return None

    def active(self) -> str | None:
        """The id of the run that holds the slot; None, too, where what stands there is no run of this session.

        (Whoever writes next frees it then.)
        """
        run_id = slot_holder(self.directory)
        return run_id if run_id is not None and self._knows(run_id) else None

    def standing(self, document: Session) -> tuple[str | None, str]:
        """`front` and `changed_at` by one look at the end of the conversation; `document` is the session's."""
        messages = self.messages_backward()
        newest = next(messages, None)
        if newest is None:
            return self.front(document, messages), document.created_at
        return self.front(document, chain((newest,), messages)), newest.at

    def front(self, document: Session | None = None, newest_first: Iterator[Message] | None = None) -> str | None:
        """The id of the run that `SESSION` alone means: it holds the slot, or gets it from whoever writes next.

        A crash may have left the slot free while runs wait for it. Where none is open, the newest; None without any.
        The arguments are those of `prompts`.
        """
        active = self.active()
        if active is not None:
            return active
        prompt = next(self.prompts(document, newest_first), None)
        if prompt is None:
            return next(iter(self.newest_run_ids(1, document)), None)
        if len(prompt.queue) == 1:
            return prompt.run_id
        still_open = [run for run in map(self._run_if_readable, prompt.queue) if run is not None and not run.is_over]
        first = min(still_open, key=lambda run: run.started_at is None, default=None)
        return first.run_id if first is not None else prompt.run_id

    def _run_if_readable(self, run_id: str) -> Run | None:
        try:
            return self.run_to_look_at(run_id).load()
        except (CorruptRecord, NotFound):
            return None  # whoever asks for that one is told

    def _knows(self, run_id: str) -> bool:
        # Nothing is opened for that: every writer asks.
        return self.directory.has(f"{layout.RUNS}/{run_id}") or self.prompt_of(run_id) is not None

    def run(self, run_id: str) -> RunDir:
        """The run with exactly this id. Raises NotFound."""
        from agentrun.store.runs import RunDir

        return RunDir(*self._parts_of(run_id))

    def run_to_look_at(self, run_id: str) -> RunReader:
        """The same for who only reads of it: what writes a run is not loaded. Raises NotFound."""
        return RunReader(*self._parts_of(run_id))

    def _parts_of(self, run_id: str) -> tuple[str, str, str, Directory, Directory, Said]:
        if ids.run_number(run_id) is None:
            raise self._missing(run_id)
        runs = self.runs()
        try:
            directory: Directory = runs.open(run_id)
        except NotFound as error:
            if self.prompt_of(run_id) is None:
                raise self._missing(run_id) from error
            from agentrun.store.expected import Expected

            # Accepted, and its directory was not made or did not last: the next writer makes it.
            directory = Expected(runs, run_id)
        return self.account, self.session_id, run_id, self.directory, directory, Said(self, run_id)

    def _missing(self, run_id: str) -> NotFound:
        return NotFound(
            f"there is no {run_id} in {self.session_id}",
            hint=f"see its runs with: agentrun show {self.session_id}",
            session_id=self.session_id,
        )

    def has_run(self, run_id: str) -> bool:
        """Whether the run is there with at least its first event, even one that is damaged or lost."""
        try:
            return self.run(run_id).is_made()
        except NotFound:
            return False

    def run_ids(self) -> list[str]:
        """The ids of all runs, newest first."""
        numbers = (ids.run_number(name) for name in self.runs().names())
        return [ids.run_id(number) for number in sorted((n for n in numbers if n), reverse=True)]

    def newest_run_ids(self, count: int, document: Session | None = None) -> list[str]:
        """The ids of the last `count` runs, newest first; as cheap with ten thousand runs as with one."""
        prompt = next(self.prompts(document), None)
        newest = (ids.run_number(prompt.run_id) or 0) if prompt else 0
        # The line of a prompt may be damaged or lost; its run is there all the same.
        while self.directory.has(f"{layout.RUNS}/{ids.run_id(newest + 1)}"):
            newest += 1
        return [ids.run_id(number) for number in range(newest, max(newest - count, 0), -1)]

    def changed_at(self, document: Session | None = None) -> str:
        """When the session last changed, by its newest message or else its making."""
        newest = next(self.messages_backward(), None)
        return newest.at if newest else (document or self.read()).created_at


class Said:
    """What the conversation says of a run."""

    __slots__ = ("_run_id", "_session")

    def __init__(self, session: SessionDir, run_id: str) -> None:
        self._session = session
        self._run_id = run_id

    def prompt(self) -> Message | None:
        """The message that began the run."""
        return self._session.prompt_of(self._run_id)

    def last_word(self, since: int) -> Message | None:
        """The newest message numbered `since` or more that tells how the run ended, or what it asked."""
        messages = self._session.messages_with((REPORT, ENDED, QUESTION), since)
        return next((message for message in messages if message.run_id == self._run_id), None)

    def front(self) -> str | None:
        """The run whose turn it is."""
        return self._session.front()

    def is_left_behind(self) -> bool:
        """Whether a later run was accepted when this one was no longer open."""
        newest = self._session.newest_prompt()
        if newest is None or newest.run_id == self._run_id:
            return False
        return self._run_id not in ((newest.accept or {}).get("behind") or ())
