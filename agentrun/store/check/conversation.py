"""One session looked over: its document, its conversation, its slot, its keys and each of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from agentrun import ids
from agentrun.errors import (
    AgentrunError,
    CorruptRecord,
    Denied,
    LockHeld,
    NewerFormat,
    NotFound,
    SessionHeld,
    TimeRanOut,
    TooManyOpen,
)
from agentrun.records.attachment import attachments_of
from agentrun.records.codec import check_version, decode
from agentrun.records.fields import SESSION, wrong_field
from agentrun.records.finding import Finding, Kind
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.store import inbox, layout
from agentrun.store.check.records import look_at_kinds, look_at_log
from agentrun.store.check.run import look_at_blobs, look_at_run, lost_log
from agentrun.store.numbers import newest_message_of
from agentrun.store.reading import slot_holder
from agentrun.store.sessions import SessionDir
from agentrun.store.summaries import summary_in

_KNOWN = frozenset(
    {
        layout.SESSION, layout.MESSAGES, layout.SUMMARY, layout.ACTIVE, layout.KEYS, layout.ATTACHMENTS,
        layout.STALE, layout.RUNS,
    }
)  # fmt: skip

_DIRECTORIES = (layout.KEYS, layout.STALE)

# Findings that say that messages are not there to be looked at.
_INCOMPLETE = frozenset({Kind.DAMAGED, Kind.SET_ASIDE, Kind.GAP, Kind.MISSING, Kind.UNREADABLE})


class _Conversation:
    """What a look at the runs needs to know of the conversation."""

    def __init__(self, session: SessionDir) -> None:
        self._session = session
        # How many of the messages were copied from another session.
        self.copied = 0
        # Of a format in which not even its document can be recognised nobody here knows what is wrong.
        self.can_be_judged = True
        self.is_whole = True
        # The runs that it began; of the last one what began it, which tells of those before.
        self.begun: set[str] = set()
        self._newest: Message | None = None
        self.closed: set[str] = set()
        self.keys: list[Finding] = []
        self.unnamed: list[Finding] = []
        self.attachments: set[str] = set()

    @property
    def newest_queue(self) -> list[str]:
        """The runs that can be open."""
        return self._newest.queue if self._newest else []

    def may_tell_end_of(self, run_id: str) -> bool:
        """Whether the end of a run is told, or may have been told by a line that cannot be read."""
        return run_id in self.closed or not self.is_whole

    def keep(self, message: Message) -> None:
        """Takes the next message. Copied lines of a fork name runs of the session they come from."""
        if message.seq <= self.copied:
            return
        if message.begins_run:
            self.begun.add(message.run_id)
            if self._newest is None or message.seq > self._newest.seq:
                self._newest = message._replace(text="")
            attachments = attachments_of(message)
            self.attachments |= {attachment.sha256 for attachment in attachments}
            if len(attachments) < len((message.accept or {}).get("attachments") or ()):
                said = f"message {message.seq}: what was attached has no file name or no SHA-256, and is passed over"
                self.unnamed.append(Finding(Kind.DAMAGED, self._session.messages.path, said))
        elif message.mode in (REPORT, ENDED):
            self.closed.add(message.run_id)
        if message.key is not None and not self._is_known(message.key, message.seq):
            said = f"message {message.seq} has a key that would be accepted again"
            self.keys.append(Finding(Kind.KEY, self._session.directory.at(layout.KEYS), said))

    def _is_known(self, key: str, seq: int) -> bool:
        try:
            return inbox.seq_of_key(self._session, key) == seq
        except Denied:
            return True  # what lies in the place of the hints is told by itself


def look_at_session(session: SessionDir) -> Iterator[Finding]:
    """Everything that is wrong with a session; nothing is changed. Damage of one part hides no other."""
    first = look_once(session)
    if any(finding.kind not in (Kind.DAMAGED, Kind.SET_ASIDE, Kind.ORPHAN) for finding in first):
        # A writer may have been half way through: what is still so while nobody writes, is so.
        try:
            with session.locked():
                first = look_once(session)
        except (NotFound, TooManyOpen):
            raise  # it was removed in the meantime, or nothing can be looked at
        except AgentrunError as error:
            is_kept = isinstance(error, LockHeld | SessionHeld | TimeRanOut)
            why = "stays locked" if is_kept else "cannot be locked"
            said = f"{why} ({error.message}); what else is told of it may be a writer half way"
            first.append(Finding(Kind.UNREADABLE, session.directory.path, said, session_id=session.session_id))
    yield from first


def look_once(session: SessionDir) -> list[Finding]:
    """As `look_at_session`, of a session into which nobody writes. What cannot be opened hides nothing beside it."""
    conversation = _Conversation(session)
    findings = [*_as_far_as_possible(session, _look_at_document(session, conversation))]
    if not conversation.can_be_judged:
        return [finding._replace(session_id=session.session_id) for finding in findings]
    findings += _as_far_as_possible(session, _look_at_messages(session, conversation))
    conversation.is_whole = not any(finding.kind in _INCOMPLETE for finding in findings)
    findings += conversation.keys + conversation.unnamed
    parts = (
        look_at_blobs(session.directory, layout.ATTACHMENTS, sorted(conversation.attachments)),
        _look_at_runs(session, conversation),
        _look_at_slot(session, conversation),
        _look_at_summary(session),
        _look_at_names(session),
        _look_at_names_of_runs(session),
    )
    for part in parts:
        findings += _as_far_as_possible(session, part)
    return [finding._replace(session_id=session.session_id) for finding in _each_once(findings)]


def _each_once(findings: list[Finding]) -> Iterator[Finding]:
    """Several parts may need what cannot be opened: then the words, which have its path, are the same."""
    told: set[str] = set()
    for finding in findings:
        words = finding.said if "/" in finding.said else f"{finding.path}: {finding.said}"
        if finding.kind is not Kind.UNREADABLE or words not in told:
            told.add(words)
            yield finding


def _as_far_as_possible(session: SessionDir, part: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of `part`, and what it could not go on for."""
    try:
        yield from part
    except CorruptRecord as error:
        yield Finding(Kind.UNREADABLE, error.path, error.message.removeprefix(f"{error.path}: "), error.offset)
    except NewerFormat as error:
        yield Finding(Kind.NEWER, session.directory.at(layout.SESSION), error.message)
    except (NotFound, TooManyOpen):
        raise  # as above
    except AgentrunError as error:
        yield Finding(Kind.UNREADABLE, session.directory.path, error.message)


def _look_at_messages(session: SessionDir, conversation: _Conversation) -> Iterator[Finding]:
    try:
        entries = session.every_entry()
        yield from look_at_log(session.messages, entries, lambda message: message.seq, conversation.keep)
        yield from _lost_messages(session)
    except CorruptRecord as error:
        if error.path != session.messages.path:
            raise
        yield Finding(Kind.MISSING, session.messages.path, "the conversation is not there")


def _lost_messages(session: SessionDir) -> Iterator[Finding]:
    """Messages at the end of the conversation that are not there, though a run or a key tells of them."""
    last = told = session.messages.last_seq()
    who = ""
    for run_id in session.run_ids():
        with suppress(AgentrunError):  # the look at the run says so
            seq = newest_message_of(session.run(run_id).load())
            told, who = max((told, who), (seq, run_id))
    with suppress(Denied):  # what lies in its place is named elsewhere
        # The hint of a key is written before its message, which may not have come.
        seq = inbox.newest_key(session) - 1
        told, who = max((told, who), (seq, f"a file in {layout.KEYS}/"))
    if told > last:
        said = f"ends with number {last}, though {who} tells of message {told}"
        yield Finding(Kind.MISSING, session.messages.path, said)


def _look_at_document(session: SessionDir, conversation: _Conversation) -> Iterator[Finding]:
    path = session.directory.at(layout.SESSION)
    try:
        conversation.copied = session.read().copied
    except NewerFormat as error:
        conversation.can_be_judged = False
        yield Finding(Kind.NEWER, path, error.message)
        return
    doc = decode(session.directory.read(layout.SESSION) or b"{}")
    # Of a newer one it is not known what its fields have to be. What else is there is looked at all the same: without
    # it the lines of a fork would be taken for inputs whose runs are lost.
    check_version(doc, path)
    wrong = wrong_field(doc, SESSION)
    if wrong is not None:
        yield Finding(Kind.DAMAGED, path, f"{wrong} is of another type, and not believed")


def _look_at_summary(session: SessionDir) -> Iterator[Finding]:
    path = session.directory.at(layout.SUMMARY)
    try:
        data = session.directory.read(layout.SUMMARY)
        if data is not None:
            summary_in(session, data)
    except NewerFormat as error:
        yield Finding(Kind.NEWER, path, error.message)
    except ValueError as error:
        said = f"is no summary that can be used: {error}; the messages themselves are used until there is another one"
        yield Finding(Kind.DAMAGED, path, said)
    except CorruptRecord as error:
        if error.path == path:
            yield Finding(Kind.UNREADABLE, path, str(error))
    except Denied:
        return  # what cannot be opened is told elsewhere


def _look_at_runs(session: SessionDir, conversation: _Conversation) -> Iterator[Finding]:
    there = session.run_ids()
    for run_id in sorted(conversation.begun - set(there), key=lambda each: ids.run_number(each) or 0):
        path = f"{session.directory.at(layout.RUNS)}/{run_id}"
        if session.has_run(run_id):
            # It is not made again: it would be queued, and nobody asked for that.
            yield lost_log(f"{path}/{layout.OPERATIONS}")._replace(run_id=run_id)
        else:
            yield Finding(Kind.RUN, path, "was accepted and is not there", run_id=run_id)
    for run_id in reversed(there):
        try:
            yield from look_at_run(session.run(run_id), conversation.may_tell_end_of(run_id))
        except TooManyOpen:
            raise
        except AgentrunError as error:
            path = getattr(error, "path", None) or f"{session.directory.at(layout.RUNS)}/{run_id}"
            yield Finding(Kind.UNREADABLE, path, str(error), run_id=run_id)


def _look_at_slot(session: SessionDir, conversation: _Conversation) -> Iterator[Finding]:
    active, path = slot_holder(session.directory), session.directory.at(layout.ACTIVE)
    if active is None:
        if session.directory.stat(layout.ACTIVE) is not None:
            yield Finding(Kind.SLOT, path, "names no run")
        waiting = _open_runs(session, conversation)
        if waiting:
            yield Finding(Kind.SLOT, path, f"is not there, though {waiting[0]} is open")
    elif not session.has_run(active):
        yield Finding(Kind.SLOT, path, f"names {active}, which is not there")
    elif _is_over(session, active):
        yield Finding(Kind.SLOT, path, f"names {active}, which has ended")
    elif begun := _begun_instead(session, conversation, active):
        yield Finding(
            Kind.SLOT, path, f"names {active}, which waits for its turn, though {begun} was begun and is open"
        )


def _open_runs(session: SessionDir, conversation: _Conversation) -> list[str]:
    return [run_id for run_id in conversation.newest_queue if session.has_run(run_id) and not _is_over(session, run_id)]


def _begun_instead(session: SessionDir, conversation: _Conversation, active: str) -> str | None:
    """An open run that was begun, if the one with the slot was not."""
    if not _waits(session, active):
        return None
    return next((run_id for run_id in _open_runs(session, conversation) if not _waits(session, run_id)), None)


def _waits(session: SessionDir, run_id: str) -> bool:
    try:
        return session.run(run_id).load().started_at is None
    except CorruptRecord:
        return True  # the look at the run says so


def _is_over(session: SessionDir, run_id: str) -> bool:
    try:
        return session.run(run_id).load().is_over
    except CorruptRecord:
        return False  # the look at the run says so


def _look_at_names(session: SessionDir) -> Iterator[Finding]:
    yield from look_at_kinds(session.directory, _DIRECTORIES, (layout.SUMMARY,))
    for name in sorted(session.directory.names()):
        if name.startswith(layout.UNFINISHED_PREFIX):
            said = "was being written when its writer ended; nothing needs it"
            yield Finding(Kind.LEFTOVER, session.directory.at(name), said)
        elif name not in _KNOWN and not layout.is_kept_aside(name):
            yield Finding(Kind.ORPHAN, session.directory.at(name), "is nothing that agentrun made")


def _look_at_names_of_runs(session: SessionDir) -> Iterator[Finding]:
    runs = session.runs()
    for name in sorted(runs.names()):
        if ids.run_number(name) is None:
            yield Finding(Kind.ORPHAN, runs.at(name), "is no run")
