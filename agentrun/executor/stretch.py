"""One stretch of executing one run: what the executor offers to the agent, kept on disk step by step.

Each method holds the session's lock for as long as it takes to look and to write, and never while anything runs. When
the run must not go on, the method does not return: the agent's scope is cancelled, and what is shielded there may
still record facts.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NoReturn

import anyio

from agentrun import clock
from agentrun.agent.checks import run_checks, standing
from agentrun.agent.events import AgentEvent, RequestFinished, ToolFinished, ToolRegistered, ToolStarted
from agentrun.agent.gaps import with_gaps
from agentrun.agent.protocols import STEERED, Question
from agentrun.agent.transcript import Transcript
from agentrun.errors import FencedOut, TransitionRefused
from agentrun.executor.audience import Audience
from agentrun.executor.claims import Claims
from agentrun.executor.compacting import Compacting
from agentrun.executor.conversation import earlier_conversation
from agentrun.executor.draft import Draft
from agentrun.executor.hold import Terms
from agentrun.executor.inputs import Inputs
from agentrun.executor.outputs import line_of
from agentrun.executor.remote_ids import StoredRemoteIds
from agentrun.records.attachment import attachments_of
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import QUESTION, Message
from agentrun.records.operation import CHECK, WRITE
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import inbox
from agentrun.store.attachments import copy_for_tools
from agentrun.store.closing import finish
from agentrun.store.identity import this_actor
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

E = EventType

# Ends the child runs of one call, or of the whole run, and returns the names of those that could not be ended.
StopChildren = Callable[[str | None, Callable[[], bool]], Awaitable[list[str]]]


async def no_children(operation_id: str | None, is_forced: Callable[[], bool]) -> list[str]:
    """For a run that begins none."""
    return []


class StoredStretch(Compacting):
    """The `Stretch` of `agent.protocols` that stores what the agent does; see there for the agent's methods."""

    def __init__(
        self,
        session: SessionDir,
        run_id: str,
        liveness: int,
        terms: Terms,
        audience: Audience,
        stop_children: StopChildren = no_children,
    ) -> None:
        self._answered = anyio.Event()
        self._stop_children = stop_children
        super().__init__(session, run_id, liveness, terms, audience)
        self._inputs = Inputs(session, self.run_dir)
        self._copy_files()
        self._draft = Draft(self.run_dir)
        # Of all events; taken up only when that is asked for.
        self._transcript = Transcript()
        self._noted: set[tuple[str, str, int | None]] = set()
        self._claims = Claims(session, self.run_dir)
        self.remote_ids = StoredRemoteIds(session, self.run_dir, self.lease)
        self.conversation = earlier_conversation(session, self.run_dir.seen)

    @property
    def transcript(self) -> Transcript:
        """The run's events, folded into turns as far as they have come."""
        return self._transcript.catch_up(self.events)

    def input(self, message_seq: int) -> Message:
        """The message of an `input.delivered` event."""
        return self._inputs.message(message_seq)

    def _copy_files(self) -> None:
        with self._recording() as writer:
            run = self.run_dir.check(self.lease, writer)
            prompt = self.session.message_at(run.message_seq)
            copy_for_tools(writer, self.run_dir, attachments_of(prompt) if prompt else [])

    async def begin_request(
        self, model: str, *, turn_id: str | None, operation_id: str, attempt: int, at_rest: bool
    ) -> None:
        """Delivers waiting input and registers a model request, in one hold of the lock."""
        with self._recording() as writer:
            run = self._going_on(writer)
            if run is not None:
                delivered = self._inputs.due(writer, run, turn_id, at_rest=at_rest) if turn_id else []
                if delivered:
                    # The words come before what is made of them, also to those who look on.
                    self.show_messages()
                for payload in delivered:
                    self.run_dir.append(self.lease, writer, E.INPUT_DELIVERED, payload)
                started = {"operationId": operation_id, "turnId": turn_id, "model": model, "attempt": attempt}
                self.run_dir.append(self.lease, writer, E.MODEL_REQUEST_STARTED, started)
                self._keep_snapshot_near(writer)
                return
        await self._stop_here()

    async def draft(self, operation_id: str, text: str) -> None:
        """More streamed text; written down a few times a second."""
        self.audience.draft(text)
        self._draft.add(operation_id, text)
        if self._draft.is_due:
            with self._recording() as writer:
                if self._going_on(writer) is not None:
                    self._draft.write(writer, self.lease)
                    return
            await self._stop_here()

    async def record(self, *events: AgentEvent) -> None:
        """Stores facts, and what follows from them. A fenced executor keeps a fact outside the run instead."""
        # Whoever goes on with a run that is left will start what is skipped here; only a run that ends skips.
        events = tuple(each for each in events if not (self.left and _is_skipped(each)))
        if not events:
            return
        stored = 0
        try:
            with self._recording() as writer:
                lasts = False
                for event in events:
                    lasts |= self._store(writer, event)
                    stored += 1
                acts = self._start_registered(writer, events) or any(isinstance(each, ToolStarted) for each in events)
                if lasts or acts:
                    self.run_dir.settle()
                if acts:
                    self._keep_snapshot_exact(writer)
                self._keep_snapshot_near(writer)
        except FencedOut as error:
            self._fence(error, events[stored])
        except TransitionRefused:
            # New work, and a stop has come in between. (Facts about what was started are never refused.)
            pass
        if not stored and isinstance(events[0], ToolRegistered):
            await self._stop_here()

    def _store(self, writer: Writer, event: AgentEvent) -> bool:
        """Stores one; returns whether it has to last before anything else happens."""
        if isinstance(event, RequestFinished):
            self._draft.write(writer, self.lease)
        kind, payload = line_of(event, lambda source: self._blob(writer, source))
        self.run_dir.append(self.lease, writer, kind, payload, durable=self._claims.ends_with(event))
        self._claims.release(writer, event)
        # What may happen outside from here on must not be denied by a power cut.
        return isinstance(event, ToolStarted) or (isinstance(event, ToolRegistered) and event.effect == WRITE)

    def _start_registered(self, writer: Writer, events: Sequence[AgentEvent]) -> bool:
        """Starts those that need nobody, unless the user has said something new; whether one of them is a write."""
        starting = [each for each in events if isinstance(each, ToolRegistered) and each.starts]
        run = self._going_on(writer) if starting else None
        if run is None or self._inputs.is_steered(writer, run):
            return False
        for each in starting:
            names = {"operationId": each.operation_id, "toolCallId": each.tool_call_id, "toolName": each.tool_name}
            self.run_dir.append(self.lease, writer, E.TOOL_STARTED, names | {"attempt": 1})
        return any(each.effect == WRITE for each in starting)

    async def ensure_going_on(self) -> None:
        """Does not return if a stop has come while it was stored that calls are started."""
        if self.look():
            await self._stop_here()

    async def start_call(self, operation_id: str, tool_call_id: str | None, tool_name: str, attempt: int) -> str | None:
        """Registers the dispatch of a call, durable if it can have effects, and looks for a stop once more after it."""
        with self._recording() as writer:
            run = self._going_on(writer)
            if run is not None:
                if self._inputs.is_steered(writer, run):
                    return STEERED
                cancelled = self.cancelled_why(operation_id)
                if cancelled:
                    return cancelled
                holder = self._claims.refusal(writer, run, operation_id)
                if holder:
                    return holder
                names = {"operationId": operation_id, "toolCallId": tool_call_id, "toolName": tool_name}
                acts, started = self._can_write(operation_id), names | {"attempt": attempt}
                self.run_dir.append(self.lease, writer, E.TOOL_STARTED, started, durable=acts)
                if acts:
                    self._keep_snapshot_exact(writer)
        # A stop may have come while the above was synced: then nothing is dispatched.
        if run is None or self.look():
            await self._stop_here()
        return None

    def time_left(self) -> float | None:
        """Seconds that the run may still execute; None is no limit."""
        left = self.seconds_left()
        return left[1] if left is not None and left[0] == "timeout" else None

    def is_steered(self) -> bool:
        """Whether a steer waits to be delivered."""
        with self._recording() as writer:
            run = self._going_on(writer)
            return run is not None and self._inputs.is_steered(writer, run)

    def scope_of(self, operation_id: str) -> AbstractContextManager[anyio.CancelScope]:
        """Cancelled if the user cancels that operation alone."""
        return self.operation_stops.scope(operation_id)

    def cancelled_why(self, operation_id: str) -> str | None:
        """Who cancelled that operation and why."""
        return self.operation_stops.words(operation_id)

    def is_forced(self, operation_id: str) -> bool:
        """Whether what is stopped gets no grace period, since the user wants the operation or the run killed."""
        return self.run_dir.seen.force or self.operation_stops.is_forced(operation_id)

    async def stop_children(self, operation_id: str) -> None:
        """Ends the child runs that the call began, by their own flow."""
        self.look()
        if any(child.get("operationId") == operation_id for child in self.run_dir.seen.children):
            await self._stop_children(operation_id, lambda: self.is_forced(operation_id))

    async def ask(self, question: Question) -> None:
        """Waits for the user here if somebody is there, and else leaves the run waiting on disk."""
        self._answered = anyio.Event()
        with self._writing() as writer:
            run = self._going_on(writer)
            if run is not None:
                if run.waiting_for is None:
                    self._wait_for_user(writer, question)
                if not self.audience.can_answer:
                    self._leave(writer, "waiting for input")
        if run is None or self.left:
            await self._stop_here()
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask_here, self.run_dir.seen.waiting_for or {})
            await self._answered.wait()
            group.cancel_scope.cancel()
        self._watch.start()

    async def complete(self, report: str) -> bool:
        """Commits the report once its checks have passed, unless there is something that has to be answered first."""
        while True:
            draft = b""
            with self._writing() as writer:
                run = self._going_on(writer)
                if run is not None:
                    if writer.undelivered(run):
                        return False
                    # What is checked is what is delivered. A finding that came since makes it another report.
                    draft = with_gaps(report, self.transcript).encode("utf-8", "replace")
                    found = standing(self.transcript.last, self.terms.checks, draft)
                    # (One that a lost executor left, and that is configured no more, is settled as well.)
                    is_open = found.missing or any(each.kind == CHECK for each in run.open_operations)
                    if not is_open:
                        return not (found.failed or run.open_operations) and self._commit(writer, draft)
            if run is None:
                await self._stop_here()
            await run_checks(self, self.terms.checks, draft)

    async def fail(self, reason: str) -> NoReturn:
        """Records that the run cannot go on."""
        self.note_failure(reason)
        await self._stop_here()

    # --- below

    def _commit(self, writer: Writer, report: bytes) -> bool:
        kept = self._blob(writer, io.BytesIO(report))
        spent = self._watch.take()
        finish(writer, self.lease, self.run_dir, RunStatus.COMPLETED, report=kept, executing_ms=spent)
        return True

    def _saw(self, event: Event) -> None:
        super()._saw(event)
        if event.type == E.RUN_INPUT_RECEIVED:
            self._answered.set()

    def _fence(self, error: FencedOut, event: AgentEvent) -> None:
        self.fenced = error
        self.scope.cancel()
        kind, payload = line_of(event, lambda source: {"note": "the output was not kept"})
        # What comes after the first word on an attempt is what the agent makes of it not being in the record.
        about = kind.value, event.operation_id, payload.get("attempt")
        if about in self._noted:
            return
        self._noted.add(about)
        self.run_dir.keep_stale(self.lease, {"type": kind.value, "at": clock.timestamp(), "payload": payload})

    def _wait_for_user(self, writer: Writer, question: Question) -> None:
        limit = self.terms.answer_timeout
        payload = {
            "questionId": f"question-{self._questions + 1}",
            "kind": question.kind,
            "text": question.text,
            "operationId": question.operation_id,
            "deadline": None if limit is None else clock.timestamp(clock.wall_seconds() + limit),
            "executingMs": self._watch.take(),
        }
        run = self.run_dir.append(self.lease, writer, E.RUN_WAITING_INPUT, payload)
        writer.append_message(run.run_id, "assistant", QUESTION, question.text, question_id=payload["questionId"])
        self.run_dir.write_snapshot(writer)

    async def _ask_here(self, waiting: Doc) -> None:
        text = await self.audience.ask(waiting)
        with self._writing() as writer:
            run = self.run_dir.current(writer)
            if (run.waiting_for or {}).get("questionId") != waiting.get("questionId"):
                return  # answered from elsewhere in the meantime
            if text is None:
                self._leave(writer, "nobody answered here")
            else:
                inbox.answer(writer, self.run_dir, inbox.Input(text, this_actor()))
        if self.left:
            self.scope.cancel()

    def _blob(self, writer: Writer, source: BinaryIO) -> Doc:
        return self.run_dir.write_blob(self.lease, writer, source)

    def _can_write(self, operation_id: str) -> bool:
        return any(
            each.effect == WRITE for each in self.run_dir.seen.open_operations if each.operation_id == operation_id
        )


def _is_skipped(event: AgentEvent) -> bool:
    return isinstance(event, ToolFinished) and event.status is OperationStatus.SKIPPED
