"""Reading sessions and runs, now or as they go on. Takes no lock and writes nothing."""

from __future__ import annotations

import sys
import time
from itertools import islice

from agentrun import ids
from agentrun.commands.names import Target
from agentrun.errors import AgentrunError
from agentrun.records.event import Event
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.views import RunDetail, RunView, SessionView
from agentrun.states import RunStatus
from agentrun.store.layout import DRAFT
from agentrun.store.log import Damage
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    from agentrun.records.inputs import Conversation
    from agentrun.records.timeline import RunRecord
    from agentrun.store.runs import RunDir

    T = TypeVar("T")


# Documents show the newest of each unless `--tail` asks for more.
NEWEST = 20
ALL = sys.maxsize
# Whoever frees the slot starts the next executor, which takes a moment to come; one that does not come in this time,
# on a busy machine too, has died on its way.
HANDOVER_SECONDS = 10.0
# Events and messages that a follower hands on at once: who joins late has all that there was before him.
_AT_ONCE = 500


def session_view(session: SessionDir, on_damage: list[AgentrunError], tail: int = NEWEST) -> SessionView:
    """A session and its newest runs. A run that cannot be read hides no other: its error goes to `on_damage`.

    Raises CorruptRecord if the session itself cannot be read.
    """
    views: list[RunView] = []
    names = session.newest_run_ids(tail)
    for run_id in names:
        try:
            views.append(session.run_to_look_at(run_id).view())
        except AgentrunError as error:
            on_damage.append(error)
    older = (ids.run_number(names[-1]) or 1) - 1 if names else 0
    return SessionView(session.read(), tuple(views), older)


def run_detail(session: SessionDir, run_dir: RunDir, tail: int = NEWEST, since: int | None = None) -> RunDetail:
    """A run with its newest messages and operations; of the latter those of which events from `since` on tell.

    Raises CorruptRecord.
    """
    return run_record(session, run_dir, tail, since).detail


def run_record(session: SessionDir, run_dir: RunDir, tail: int = ALL, since: int | None = None) -> RunRecord:
    """The same with its newest operations against time. Raises CorruptRecord."""
    from agentrun.records.inputs import Inputs
    from agentrun.records.timeline import RunRecord, timeline_of

    view = told(run_dir)
    events, earlier = _events_told(run_dir, tail, since)
    timeline = timeline_of(events)
    messages = messages_of(session, view, tail)
    session.messages.sync_for_reading()
    detail = RunDetail(
        view=view,
        operations=tuple(bar.operation for bar in timeline.bars),
        messages=messages,
        inputs=Inputs(view.run, messages, timeline.deliveries),
        report=run_dir.report(),
        earlier=earlier,
    )
    return RunRecord(detail, timeline)


def run_timeline(session: SessionDir, run_dir: RunDir, tail: int = ALL) -> RunRecord:
    """As `run_record`, without the operations in its detail: they are read, one by one, with the bars of the timeline.

    They are as many as the run had, and a chart of them needs no more of each than when it was under way. So it is with
    its messages: who goes through them reads them again.
    """
    from agentrun.records.inputs import Inputs
    from agentrun.records.timeline import RunRecord, timeline_from

    if tail != ALL:
        return run_record(session, run_dir, tail)
    view = told(run_dir)
    # What comes later would not be in all of the looks.
    end = run_dir.events.size()
    messages = whole_conversation(session, view)
    timeline = timeline_from(lambda: run_dir.lasting_events(end))
    session.messages.sync_for_reading()
    inputs = Inputs(view.run, messages, timeline.deliveries)
    return RunRecord(RunDetail(view, (), messages, inputs, run_dir.report()), timeline)


def _events_told(run_dir: RunDir, tail: int, since: int | None) -> tuple[Iterator[Event], int]:
    """The events without those of operations that are not shown, and how many of these there are.

    Twice through all of them: a run may have had ten thousand operations, and what they returned is not kept.
    """
    if tail == ALL and since is None:
        return run_dir.lasting_events(), 0
    from agentrun.records.operation import OF_OPERATIONS

    shown, count = _newest_operations(run_dir, tail, since)
    events = (
        event
        for event in run_dir.lasting_events()
        if event.type not in OF_OPERATIONS or str(event.payload.get("operationId")) in shown
    )
    return events, max(count - tail, 0)


def _newest_operations(run_dir: RunDir, tail: int, since: int | None) -> tuple[set[str], int]:
    """The ids of the last `tail` operations, of those of which events from `since` on tell, and how many these are."""
    from collections import deque

    from agentrun.records.bars import Late
    from agentrun.records.seen import Seen

    named = None
    if since is not None:
        ids = (event.payload.get("operationId") for event in run_dir.lasting_events() if event.seq >= since)
        named = Seen(each for each in ids if isinstance(each, str))
    late, newest, count = Late(), deque[str](maxlen=tail), 0
    for event in run_dir.lasting_events():
        registered = late.add(event)
        if registered is not None and (named is None or registered.operation_id in named):
            newest.append(registered.operation_id)
            count += 1
    return {*newest}, count


def told(run_dir: RunDir) -> RunView:
    """The run, durable as it is told: an end or a number that somebody saw must not change with a power cut."""
    view = run_dir.view()
    run_dir.events.sync_for_reading()
    return view


class Standstill:
    """Says of a run that is looked at again and again whether there is nothing more to wait for."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self._unattended_since: float | None = None

    def has_come(self, view: RunView) -> bool:
        """Whether the run ended, waits for the user, or has nobody who drives it.

        Not before `run.json` shows it, as long as somebody is there who writes it.
        """
        if self._is_left_alone(view):
            return True
        if not (view.run.is_over or view.status is RunStatus.WAITING_INPUT or view.executor == "lost"):
            return False
        snapshot = self.run_dir.snapshot()
        from agentrun.store.locks import is_executor_alive

        is_published = snapshot is not None and snapshot.status is view.run.status
        return is_published or not is_executor_alive(self.run_dir.directory)

    def _is_left_alone(self, view: RunView) -> bool:
        if not (view.unattended or view.lost_ahead):
            self._unattended_since = None
            return False
        now = time.monotonic()
        if self._unattended_since is None:
            self._unattended_since = now
        return now - self._unattended_since >= HANDOVER_SECONDS


def messages_of(session: SessionDir, view: RunView, tail: int) -> tuple[Message, ...]:
    """The last `tail` messages of a run, oldest first."""
    if tail == ALL:
        return tuple(whole_conversation(session, view))
    newest: list[Message] = []
    for message in session.messages_of(view.run.run_id, view.run.message_seq):
        newest.append(message)
        if len(newest) == tail:
            break
    return tuple(newest[::-1])


def whole_conversation(session: SessionDir, view: RunView) -> Conversation:
    """All messages of a run, from its first to the one that says how it ended: so none of another run is read twice.

    Those that are there now: what comes later would not be in each of the looks.
    """
    from agentrun.records.inputs import Conversation

    end = session.messages.size()

    def read(since: int) -> Iterator[Message]:
        for message in session.messages_since(max(since, view.run.message_seq), end):
            if message.run_id == view.run.run_id:
                yield message
                if message.mode in (REPORT, ENDED):
                    return

    return Conversation.of(read)


def messages(session: SessionDir, since: int | None, tail: int | None) -> Iterator[Message]:
    """The session's messages in order: from number `since` on, or the last `tail`; all of them otherwise."""
    log = session.messages
    if since is None and tail is not None:
        newest = session.tail(tail)
        log.sync_for_reading()
        yield from newest
        return
    yield from _last(session.lasting_messages(since or 1), tail)


def operations(run_dir: RunDir, since: int | None, tail: int | None) -> Iterator[Event]:
    """The run's events in order: from number `since` on, or the last `tail`; all of them otherwise."""
    yield from _last((event for event in run_dir.lasting_events() if event.seq >= (since or 1)), tail)


def damage(session: SessionDir, *run_dirs: RunDir) -> list[Damage]:
    """The damaged records that were passed over while reading through these handles."""
    return [*session.messages.damage, *(each for run_dir in run_dirs for each in run_dir.events.damage)]


class Follower:
    """Follows one run: everything once, in order, from the first or from `since` on.

    `step` returns what is new; the caller shows it and calls again. Looking costs nothing while nothing happens.
    `is_to_look_again`: the next step looks how the run stands, without waiting.
    """

    def __init__(self, target: Target, since: int = 0) -> None:
        from agentrun.store.watch import Watch

        self.session = target.session
        self.run_dir = target.run()
        self.view = told(self.run_dir)
        self._standstill = Standstill(self.run_dir)
        self._since = since
        self._events_offset = 0
        self._messages_offset = self.session.messages.offset_of(self.view.run.message_seq)
        self._draft = ""
        self._draft_changed: tuple[int, int] | None = None
        # What has come and was not handed on yet.
        self._upcoming: Iterator[Event | Message] | None = None
        self.is_to_look_again = False
        self._looked = time.monotonic()
        self._watch = Watch(self.run_dir.directory, self.session.directory)

    def wait(self, seconds: float | None) -> None:
        """Waits until something may have changed, at most `seconds`."""
        if not self.is_to_look_again:
            self._watch.wait(seconds)

    def close(self) -> None:
        """Stops following."""
        self._watch.close()

    def step(self) -> list[Event | Message]:
        """What has come since the last step: messages and events of the run, in the order in which they happened.

        Of much that has come the first part; the next step has the next one.
        """
        news = self._news()
        # Who watches wants the line; how the run stands is looked at once it was shown, in the next step.
        is_due = time.monotonic() >= self._looked + self._watch.patience
        self.is_to_look_again = is_due or self._has_more or any(map(_changes_standing, news))
        if news:
            return news
        # The state first: what is read after it contains at least what it tells.
        self._looked = time.monotonic()
        self.view = told(self.run_dir)
        news = self._news()
        self.is_to_look_again = self._has_more
        return news

    def _news(self) -> list[Event | Message]:
        if self._upcoming is None:
            from heapq import merge

            messages: Iterator[Event | Message] = self._new_messages()
            # By time between the two logs, and by number within each of them, whatever the clock did.
            self._upcoming = merge(messages, self._new_events(), key=lambda each: each.at)
        news = list(islice(self._upcoming, _AT_ONCE))
        if len(news) < _AT_ONCE:
            self._upcoming = None
        return news

    @property
    def _has_more(self) -> bool:
        return self._upcoming is not None

    def new_draft(self) -> str | None:
        """The text of the reply under way, if it changed."""
        found = self.run_dir.directory.stat(DRAFT)
        changed = (found.st_mtime_ns, found.st_size) if found else None
        if changed == self._draft_changed:
            return None
        self._draft_changed = changed
        return self.run_dir.draft()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.is_to_look_again and self._standstill.has_come(self.view)

    def _new_messages(self) -> Iterator[Message]:
        log = self.session.messages
        for offset, message in log.lasting(self.session.message, self._messages_offset):
            self._messages_offset = offset
            if message.run_id == self.run_dir.run_id:
                yield message

    def _new_events(self) -> Iterator[Event]:
        log = self.run_dir.events
        for offset, event in log.lasting(self.run_dir.event, self._events_offset):
            self._events_offset = offset
            if event.seq >= self._since:
                yield event


def _changes_standing(news: Event | Message) -> bool:
    """Whether the run may stand differently because of it: an operation that goes on is most of what happens."""
    from agentrun.records.operation import OF_OPERATIONS  # here: who only looks once has no use for it

    return not (isinstance(news, Event) and news.type in OF_OPERATIONS)


def _last(records: Iterator[T], count: int | None) -> Iterator[T]:
    if count is None:
        return records
    from collections import deque  # here: only some looks need it

    return iter(deque(records, maxlen=count))
