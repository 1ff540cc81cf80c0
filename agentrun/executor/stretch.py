"""One stretch of executing one run: what the executor offers to the agent, kept on disk step by step.

Each method holds the session's lock for as long as it takes to look and to write, and never while anything runs. When
the run must not go on, the method does not return: the agent's scope is cancelled, and what is shielded there may
still record facts.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import BinaryIO, NamedTuple, NoReturn

import anyio

from agentrun import clock
from agentrun.agent.events import AgentEvent, RequestFinished, ToolFinished, ToolRegistered
from agentrun.agent.protocols import STEERED, Question
from agentrun.errors import FencedOut, NotFound, TransitionRefused
from agentrun.executor.audience import Audience
from agentrun.executor.conversation import earlier_conversation
from agentrun.executor.draft import Draft
from agentrun.executor.outputs import line_of
from agentrun.executor.stopwatch import Stopwatch
from agentrun.lifecycle.winding_down import wind_down
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.lease import Lease
from agentrun.records.message import FOLLOW_UP, QUESTION, STEER, Message
from agentrun.records.operation import WRITE
from agentrun.records.run import Run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.store import inbox
from agentrun.store.closing import finish
from agentrun.store.identity import this_actor
from agentrun.store.redo import recording, writing
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer

E = EventType


class Terms(NamedTuple):
    """What a stretch keeps to. Seconds; None is no limit."""

    lease: float
    timeout: float | None
    answer_timeout: float | None


class StoredStretch:
    """The `Stretch` of `agent.protocols` that stores what the agent does; see there for the agent's methods.

    `liveness` is the descriptor of the executor's lock, which is let go with the stretch.
    """

    def __init__(self, session: SessionDir, run_id: str, liveness: int, terms: Terms, audience: Audience) -> None:
        self.session = session
        self.run_dir = session.run(run_id)
        self.terms = terms
        self.audience = audience
        self.events: list[Event] = []
        self.scope = anyio.CancelScope()
        # Why the stretch is over although the run is not: it waits for the user, or is handed over.
        self.left: str | None = None
        self.fenced: FencedOut | None = None
        self._liveness: int | None = liveness
        self._answered = anyio.Event()
        self._inputs: dict[int, Message] = {}
        self._untold: list[Event] = []
        self._draft = Draft(self.run_dir)
        # The length of the conversation when it was last found to hold no undelivered input.
        self._nothing_waits_at = -1
        self._watch = Stopwatch()
        self.lease = self._claim()
        self.conversation = earlier_conversation(session, self.run_dir.seen)
        self._shown = session.messages.offset_of(self.run_dir.seen.message_seq)

    # --- what the agent calls

    def input(self, message_seq: int) -> Message:
        """The message of an `input.delivered` event. Raises NotFound if it cannot be read."""
        if message_seq not in self._inputs:
            message = self.session.message_at(message_seq)
            if message is None:
                raise NotFound(f"message {message_seq} of {self.session.session_id} cannot be read")
            self._inputs[message_seq] = message
        return self._inputs[message_seq]

    async def begin_request(self, model: str, *, turn_id: str, operation_id: str, attempt: int, at_rest: bool) -> None:
        """Delivers waiting input and registers a model request, in one hold of the lock."""
        with self._recording() as writer:
            run = self._going_on(writer)
            if run is not None:
                self._deliver(writer, run, turn_id, at_rest)
                started = {"operationId": operation_id, "turnId": turn_id, "model": model, "attempt": attempt}
                self.run_dir.append(self.lease, writer, E.MODEL_REQUEST_STARTED, started)
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

    async def record(self, event: AgentEvent) -> None:
        """Stores a fact. A fenced executor keeps it outside the run instead."""
        if self.left and isinstance(event, ToolFinished) and event.status is OperationStatus.SKIPPED:
            # Whoever goes on with the run will start it; only a run that ends skips.
            return
        stored = False
        try:
            with self._recording() as writer:
                if isinstance(event, RequestFinished):
                    self._draft.write(writer, self.lease)
                kind, payload = line_of(event, lambda source: self._blob(writer, source))
                is_write = isinstance(event, ToolRegistered) and event.effect == WRITE
                self.run_dir.append(self.lease, writer, kind, payload, durable=is_write)
                stored = True
        except FencedOut as error:
            self._fence(error, event)
        except TransitionRefused:
            # New work, and a stop has come in between. (Facts about what was started are never refused.)
            pass
        if not stored and isinstance(event, ToolRegistered):
            await self._stop_here()

    async def start_call(self, operation_id: str, tool_call_id: str, tool_name: str, attempt: int) -> str | None:
        """Registers the dispatch of a call, durable if it can have effects, and looks for a stop once more after it."""
        with self._recording() as writer:
            run = self._going_on(writer)
            if run is not None:
                if self._is_steered(writer, run):
                    return STEERED
                started = {
                    "operationId": operation_id,
                    "toolCallId": tool_call_id,
                    "toolName": tool_name,
                    "attempt": attempt,
                }
                self.run_dir.append(self.lease, writer, E.TOOL_STARTED, started, durable=self._can_write(operation_id))
        # A stop may have come while the above was synced: then nothing is dispatched.
        if run is None or self.look():
            await self._stop_here()
        return None

    def is_steered(self) -> bool:
        """Whether a steer waits to be delivered."""
        with self._recording() as writer:
            run = self._going_on(writer)
            return run is not None and self._is_steered(writer, run)

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
        """Commits the report, unless input has come that nobody has answered."""
        with self._writing() as writer:
            run = self._going_on(writer)
            if run is not None:
                if writer.undelivered(run) or run.open_operations:
                    return False
                kept = self._blob(writer, io.BytesIO(report.encode("utf-8", "replace")))
                spent = self._watch.take()
                finish(writer, self.lease, self.run_dir, RunStatus.COMPLETED, report=kept, executing_ms=spent)
                return True
        return await self._stop_here()

    async def fail(self, reason: str) -> NoReturn:
        """Records that the run cannot go on."""
        self.note_failure(reason)
        await self._stop_here()

    # --- what the executor's other tasks call

    def look(self) -> bool:
        """Looks whether others wrote into the run; True if it must not go on, and then the agent is stopped."""
        if self.run_dir.has_news():
            with self._recording() as writer:
                self._going_on(writer)
        if self.fenced or self.run_dir.seen.ending is not None:
            self.scope.cancel()
            return True
        return False

    def show_messages(self) -> None:
        """Tells the audience of the run's messages that it has not been told of."""
        log = self.session.messages
        for offset, message in log.forward(self.session.message, self._shown):
            self._shown = offset
            if message.run_id == self.run_dir.run_id:
                self.audience.message(message)

    def request_stop(self, intent: str, reason: str, via: str, actor: Doc) -> None:
        """Stores an intent to stop this run, as anyone could, and stops the agent."""
        with self._writing() as writer:
            if not self.run_dir.current(writer).is_over:
                inbox.request_stop(writer, self.run_dir, actor=actor, reason=reason, intent=intent, via=via)
        self.look()

    def note_failure(self, reason: str) -> None:
        """Records that the run cannot go on, unless it is ending already."""
        with self._writing() as writer:
            if self._going_on(writer) is not None:
                self.run_dir.append(self.lease, writer, E.RUN_FAILING, {"reason": reason})
                self.run_dir.write_snapshot(writer)

    def hand_over(self, reason: str) -> None:
        """Stops the agent here so that another executor can go on: the run is neither failed nor cancelled."""
        self.left = reason
        self.scope.cancel()

    def end(self) -> None:
        """Ends the stretch after the agent has let go of everything: with the run's end, or by handing over."""
        if self._liveness is None or self.fenced:
            return
        with self._writing() as writer:
            run = self.run_dir.check(self.lease, writer)
            if run.ending is not None and not run.is_over:
                wind_down(writer, self.lease, self.run_dir, executing_ms=self._watch.take())
            elif not run.is_over:
                operations = [operation.operation_id for operation in run.open_operations]
                payload = {"reason": self.left or "the agent stopped", "operationIds": operations}
                self.run_dir.append(self.lease, writer, E.RUN_RECONCILING, payload)
                self._leave(writer, str(payload["reason"]))
            self.release()

    def release(self) -> None:
        """Lets the executor's lock go."""
        if self._liveness is not None:
            os.close(self._liveness)
            self._liveness = None

    def seconds_left(self) -> tuple[str, float] | None:
        """Which time limit runs now, `timeout` or `answer_timeout`, and how much of it is left in seconds."""
        run = self.run_dir.seen
        if run.waiting_for is not None:
            deadline = run.waiting_for.get("deadline")
            return ("answer_timeout", clock.seconds_of(deadline) - clock.wall_seconds()) if deadline else None
        spent = self._watch.seconds()
        if self.terms.timeout is None or spent is None:
            return None
        return "timeout", self.terms.timeout - run.usage["executingMs"] / 1000 - spent

    # --- below

    @contextmanager
    def _recording(self) -> Iterator[Writer]:
        try:
            with recording(self.session) as writer:
                yield writer
        finally:
            self._tell()

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        try:
            with writing(self.session) as writer:
                yield writer
        finally:
            self._tell()

    def _tell(self) -> None:
        """Tells the audience what was stored. A script keeps what it is told, numbers too: so that has to last."""
        if self._untold and self.audience.keeps_what_it_hears:
            self.run_dir.events.sync_for_reading()
        untold, self._untold = self._untold, []
        for event in untold:
            self.audience.event(event)

    def _claim(self) -> Lease:
        with self._writing() as writer:
            lease = self.run_dir.claim(writer, lease_seconds=self.terms.lease, timeout=self.terms.timeout)
            # All of them, from the first: the agent decides by them.
            self.run_dir.on_event = self._saw
            for event in self.run_dir.all_events():
                self._saw(event)
        self._watch.start()
        return lease

    def _saw(self, event: Event) -> None:
        if self.events and event.seq <= self.events[-1].seq:
            return
        self.events.append(event)
        self._untold.append(event)
        if event.type == E.RUN_INPUT_RECEIVED:
            self._answered.set()

    def _going_on(self, writer: Writer) -> Run | None:
        """The run, if this stretch may still do new work in it."""
        try:
            run = self.run_dir.check(self.lease, writer)
        except FencedOut as error:
            self.fenced = error
            return None
        return run if run.ending is None and not run.is_over and not self.left else None

    async def _stop_here(self) -> NoReturn:
        self.scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError("a cancelled scope does not go on")

    def _fence(self, error: FencedOut, event: AgentEvent) -> None:
        self.fenced = error
        self.scope.cancel()
        kind, payload = line_of(event, lambda source: {"note": "the output was not kept"})
        self.run_dir.keep_stale(self.lease, {"type": kind.value, "at": clock.timestamp(), "payload": payload})

    def _is_steered(self, writer: Writer, run: Run) -> bool:
        """Whether a steer waits to be delivered. As long as nothing is said, looking costs one system call."""
        size = self.session.messages.size()
        if size == self._nothing_waits_at:
            return False
        waiting = writer.undelivered(run)
        if not waiting:
            self._nothing_waits_at = size
        return any(message.mode == STEER for message in waiting)

    def _deliver(self, writer: Writer, run: Run, turn_id: str, at_rest: bool) -> None:
        inputs = [each for each in writer.undelivered(run) if at_rest or each.mode != FOLLOW_UP]
        if inputs:
            # Whoever accepted them may have died before its sync; the delivery must not outlive them.
            self.session.messages.sync()
            # The words come before what is made of them, also to those who look on.
            self.show_messages()
        for mode, group in groupby(inputs, key=lambda message: message.mode):
            messages = list(group)
            self._inputs |= {message.seq: message for message in messages}
            payload = {"messageSeqs": [message.seq for message in messages], "mode": mode, "turnId": turn_id}
            self.run_dir.append(self.lease, writer, E.INPUT_DELIVERED, payload)

    def _wait_for_user(self, writer: Writer, question: Question) -> None:
        asked = sum(event.type == E.RUN_WAITING_INPUT for event in self.events)
        limit = self.terms.answer_timeout
        payload = {
            "questionId": f"question-{asked + 1}",
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

    def _leave(self, writer: Writer, reason: str) -> None:
        """Lets the run go in the hold in which it came to wait: an answer then finds no executor, and takes over."""
        payload = {"reason": reason, "executingMs": self._watch.take()}
        self.run_dir.append(self.lease, writer, E.RUN_LEASE_RELEASED, payload, durable=True)
        self.run_dir.end_lease(writer)
        self.run_dir.write_snapshot(writer)
        self.left = reason
        self.release()

    def _blob(self, writer: Writer, source: BinaryIO) -> Doc:
        return self.run_dir.write_blob(self.lease, writer, source)

    def _can_write(self, operation_id: str) -> bool:
        return any(
            each.effect == WRITE for each in self.run_dir.seen.open_operations if each.operation_id == operation_id
        )
