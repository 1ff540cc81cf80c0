"""A stretch without a disk: an agent can be tried out in it, stopped at any event, and taken up again.

`FakeStretch` keeps the promises of `agent.protocols.Stretch` and refuses what the table of states refuses;
what an executor would write into `operations.jsonl` is in `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import groupby
from typing import NoReturn

import anyio
import anyio.lowlevel

from agentrun import clock
from agentrun.agent.checks import Check, run_checks, standing
from agentrun.agent.events import (
    AgentEvent,
    RemoteIdLearned,
    RequestFinished,
    ToolFinished,
    ToolProgressed,
    ToolRegistered,
    ToolStarted,
    as_stored,
)
from agentrun.agent.gaps import with_gaps
from agentrun.agent.protocols import STEERED, Agent, Conversation, Question
from agentrun.agent.transcript import Transcript
from agentrun.executor.operation_stops import OperationStops
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import ANSWER, COMPACT, FOLLOW_UP, PROMPT, STEER, Message
from agentrun.records.operation import WRITE, Operation, fold_operations
from agentrun.records.run import Run, accepted_run
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeRemoteIds

E = EventType
Hook = Callable[["FakeStretch", Event], None]

SESSION, RUN = "session-test", "run-1"


class FakeStretch:
    """One stretch of a run. `drive` runs an agent in it, as an executor would.

    `answers` are what the user says to questions, one after the other; without one the run is left waiting. A report
    has to pass `checks`; `seconds_left` is the time that the run has. With the `input_mode` `compact` it was begun to
    summarise.
    `hooks` are called after each event: they may steer, follow up, or stop the run. With `yields`, a stop
    that comes from a hook is felt by the agent inside the call that stored the event, else at its next step.
    """

    def __init__(
        self,
        prompt: str = "go",
        *,
        conversation: Conversation | None = None,
        yields: bool = True,
        input_mode: str = PROMPT,
    ) -> None:
        self.conversation = conversation or Conversation((), {})
        self.remote_ids = FakeRemoteIds()
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.answers: list[str] = []
        self.checks: list[Check] = []
        self.hooks: list[Hook] = []
        self.drafts: dict[str, str] = {}
        self.report: str | None = None
        self.seconds_left: float | None = None
        self.is_left = False
        self.open_at_end: tuple[Operation, ...] = ()
        self._transcript = Transcript()
        self._stops = OperationStops()
        self._yields = yields
        self._scope: anyio.CancelScope | None = None  # an event loop has to run where one is made
        self._run: Run | None = None
        self._generation = 0
        self._say(input_mode, prompt)
        self._append(E.RUN_ACCEPTED, {"messageSeq": 1, "inputMode": input_mode, "accountId": "test"})
        self._begin()

    @classmethod
    def after(cls, events: Iterable[Event], messages: Iterable[Message], *, yields: bool = True) -> FakeStretch:
        """The next stretch of the run that has `events`, of which the executor is gone."""
        stretch = cls(yields=yields)
        stretch.events, stretch.messages = list(events), list(messages)
        stretch._run = accepted_run(stretch.events[0]).fold(stretch.events[1:])
        for event in stretch.events:
            stretch._stops.take(event)
        stretch._generation = stretch._run.generation
        if stretch._run.status in (RunStatus.RUNNING, RunStatus.COMPACTING):
            stretch._append(E.RUN_RECONCILING, {"reason": "executor lost", "operationIds": []})
        stretch._begin()
        return stretch

    @property
    def run(self) -> Run:
        """The run, folded from the events."""
        assert self._run is not None
        return self._run

    @property
    def operations(self) -> list[Operation]:
        """All operations of the run, in the order in which they were registered."""
        return fold_operations(self.events)

    def types(self) -> list[str]:
        """The types of the events, in order."""
        return [event.type for event in self.events]

    async def drive(self, agent: Agent) -> RunStatus:
        """Runs `agent` until the run ends, waits or is stopped; returns the run's status then.

        `open_at_end` are the operations that the agent left without an outcome when the run was to end.
        """
        with anyio.CancelScope() as self._scope:
            await agent.run(self)
        if self.run.ending and not self.run.is_over:
            self.open_at_end = self.run.open_operations
            for operation in self.open_at_end:
                self._settle(operation)
            self._append(E.RUN_FINISHED, {"terminalStatus": self.run.ending.value})
        return self.run.status

    # What users do.

    def steer(self, text: str) -> None:
        """A steer comes in."""
        self._say(STEER, text)

    def follow_up(self, text: str) -> None:
        """A follow-up comes in."""
        self._say(FOLLOW_UP, text)

    def answer(self, text: str, note: str | None = None) -> None:
        """The answer to the open question; to an approval, `approved` or anything else."""
        waiting = self.run.waiting_for or {}
        message = self._say(ANSWER, text)
        payload: Doc = {"questionId": waiting.get("questionId"), "messageSeq": message.seq}
        if waiting.get("kind") == "approval":
            payload["approved"] = text == "approved"
        if note:
            payload["note"] = note
        self._append(E.RUN_INPUT_RECEIVED, payload)

    def cancel(self) -> None:
        """The run is to stop."""
        if self.run.ending is None and not self.run.is_over:
            self._append(E.RUN_CANCEL_REQUESTED, {"intent": "cancel", "reason": "test"})
            self.hand_over()

    def cancel_operation(self, operation_id: str, *, force: bool = False) -> None:
        """One operation is to stop, and the run to go on."""
        payload: Doc = {"operationId": operation_id, "actor": {"user": "ann"}, "reason": "not needed"}
        self._append(E.OPERATION_CANCEL_REQUESTED, payload | ({"force": True} if force else {}))

    def find(self, operation_id: str, status: OperationStatus) -> None:
        """Somebody finds out how an operation ended of which that was not certain."""
        finding: Doc = {"operationId": operation_id, "status": status.value, "evidence": "test"}
        self._append(E.OPERATION_RECONCILED, finding)

    def hand_over(self) -> None:
        """The agent is to stop here, but the run goes on in another stretch."""
        if self._scope:
            self._scope.cancel()

    def stop_at(self, seq: int) -> None:
        """Stops the run as soon as the event of that seq is stored."""
        self._once(lambda event: event.seq == seq, FakeStretch.cancel)

    def at(self, kind: EventType, act: Callable[[FakeStretch], None]) -> None:
        """Does something once, as soon as the next event of that type is stored."""
        self._once(lambda event: event.type == kind, act)

    def _once(self, fits: Callable[[Event], bool], act: Callable[[FakeStretch], None]) -> None:
        def hook(stretch: FakeStretch, event: Event) -> None:
            if hook in stretch.hooks and fits(event):
                stretch.hooks.remove(hook)
                act(stretch)

        self.hooks.append(hook)

    # What the agent calls; see `agent.protocols.Stretch`.

    @property
    def transcript(self) -> Transcript:
        return self._transcript.catch_up(self.events)

    def input(self, message_seq: int) -> Message:
        return self.messages[message_seq - 1]

    async def begin_request(
        self, model: str, *, turn_id: str | None, operation_id: str, attempt: int, at_rest: bool
    ) -> None:
        await self._check()
        waiting = [each for each in self._undelivered() if turn_id and (at_rest or each.mode != FOLLOW_UP)]
        # One step of an executor: nothing else can come in between.
        delivered = []
        for mode, messages in groupby(waiting, key=lambda message: message.mode):
            seqs = [message.seq for message in messages]
            delivered.append(self._add(E.INPUT_DELIVERED, {"messageSeqs": seqs, "mode": mode, "turnId": turn_id}))
        started = {"operationId": operation_id, "turnId": turn_id, "model": model, "attempt": attempt}
        delivered.append(self._add(E.MODEL_REQUEST_STARTED, started))
        await self._tell(*delivered)

    async def draft(self, operation_id: str, text: str) -> None:
        self.drafts[operation_id] = self.drafts.get(operation_id, "") + text
        await anyio.lowlevel.checkpoint()

    async def record(self, *events: AgentEvent) -> None:
        with anyio.CancelScope(shield=isinstance(events[0], RequestFinished | ToolFinished)):
            await self._record_all(events)

    async def _record_all(self, events: tuple[AgentEvent, ...]) -> None:
        for event in events:
            if event is events[0] or not self._must_stop:
                await self._record(event)
        for event in (each for each in events if isinstance(each, ToolRegistered) and each.starts):
            if not (self._must_stop or self._why_not(event.operation_id)):
                self._append(E.TOOL_STARTED, _names(event.operation_id, event.tool_call_id, event.tool_name, 1))
        await self._tell()

    async def _record(self, event: AgentEvent) -> None:
        kind, payload = as_stored(event)
        match event:
            case RequestFinished():
                payload["text"] = event.text
            case ToolFinished():
                output = event.output if isinstance(event.output, bytes) else event.output.read()
                payload["result"] = output.decode("utf-8", "replace") if event.shown is None else event.shown
            case ToolRegistered():
                await self._check()  # new work; all else is a fact
            case ToolStarted() | ToolProgressed() | RemoteIdLearned():
                pass
        self._append(kind, payload)

    async def ensure_going_on(self) -> None:
        await self._check()

    async def start_call(self, operation_id: str, tool_call_id: str | None, tool_name: str, attempt: int) -> str | None:
        await self._check()
        if why_not := self._why_not(operation_id):
            return why_not
        await self._store(E.TOOL_STARTED, _names(operation_id, tool_call_id, tool_name, attempt))
        return None

    def _why_not(self, operation_id: str) -> str | None:
        return STEERED if self.is_steered() else self.cancelled_why(operation_id)

    def time_left(self) -> float | None:
        return self.seconds_left

    def is_steered(self) -> bool:
        return any(message.mode == STEER for message in self._undelivered())

    def scope_of(self, operation_id: str) -> AbstractContextManager[anyio.CancelScope]:
        return self._stops.scope(operation_id)

    def cancelled_why(self, operation_id: str) -> str | None:
        return self._stops.words(operation_id)

    def is_forced(self, operation_id: str) -> bool:
        return self.run.force or self._stops.is_forced(operation_id)

    async def stop_children(self, operation_id: str) -> None:
        await anyio.lowlevel.checkpoint()

    async def ask(self, question: Question) -> None:
        await self._check()
        if self.run.status is not RunStatus.WAITING_INPUT:
            number = sum(kind == E.RUN_WAITING_INPUT for kind in self.types()) + 1
            payload = {"questionId": f"question-{number}", "kind": question.kind, "text": question.text}
            self._append(E.RUN_WAITING_INPUT, payload | {"operationId": question.operation_id})
            await self._check()
        if not self.answers:
            self.is_left = True
            await self._stop_here()
        self.answer(self.answers.pop(0))
        await self._check()

    async def complete(self, report: str) -> bool:
        await self._check()
        if self._undelivered():
            return False
        draft = with_gaps(report, self.transcript).encode("utf-8")
        if standing(self.transcript.last, self.checks, draft).missing:
            await run_checks(self, self.checks, draft)
            return await self.complete(report)
        if standing(self.transcript.last, self.checks, draft).failed or self.run.open_operations:
            return False
        self.report = draft.decode("utf-8")
        self._append(E.RUN_FINISHED, {"terminalStatus": "completed"})
        return True

    def uncovered(self, characters: int) -> list[Message]:
        taken: list[Message] = []
        for message in self.conversation.messages:
            characters -= len(message.text)
            if taken and characters < 0:
                break
            taken.append(message)
        return taken

    async def begin_compaction(self, covers: Doc) -> None:
        await self._check()
        await self._store(E.RUN_COMPACTING, {"covers": covers})

    async def end_compaction(self, operation_id: str, covers: Doc, text: str | None, error: str | None) -> None:
        await self._check()
        if text is not None:
            seq = covers["messageSeq"]
            left = [message for message in self.conversation.messages if message.seq > seq]
            covered = {"summary": text, "covered_seq": seq, "covered_events": covers["eventSeq"] or 0}
            self.conversation = self.conversation._replace(messages=left, **covered)
        payload: Doc = {"operationId": operation_id, "covers": covers if text is not None else None}
        await self._store(E.RUN_COMPACTED, payload | ({"error": error} if text is None else {}))

    async def complete_without_report(self, reason: str) -> bool:
        await self._check()
        if self._undelivered():
            return False
        self._append(E.RUN_FINISHED, {"terminalStatus": "completed", "reason": reason})
        return True

    async def fail(self, reason: str) -> NoReturn:
        await self._check()
        self._append(E.RUN_FAILING, {"reason": reason})
        await self._stop_here()

    # Below.

    def _begin(self) -> None:
        self._generation += 1
        self._append(E.RUN_LEASE_ACQUIRED, {"previousGeneration": self._generation - 1})
        if self.run.status in (RunStatus.QUEUED, RunStatus.RECONCILING):
            self._append(E.RUN_STARTED, {"inputMode": PROMPT})

    def _say(self, mode: str, text: str) -> Message:
        role = "system" if mode == COMPACT else "user"
        message = Message(len(self.messages) + 1, SESSION, RUN, role, mode, text, clock.timestamp(0))
        self.messages.append(message)
        return message

    def _undelivered(self) -> list[Message]:
        return [each for each in self.messages if each.is_input and each.seq not in self.run.delivered_inputs]

    def _append(self, kind: EventType, payload: Doc) -> None:
        self._call_hooks(self._add(kind, payload))

    def _call_hooks(self, event: Event) -> None:
        for hook in list(self.hooks):
            hook(self, event)

    def _add(self, kind: EventType, payload: Doc) -> Event:
        seq = len(self.events) + 1
        event = Event(SESSION, RUN, seq, kind.value, clock.timestamp(seq), self._generation, payload)
        self._run = self._run.apply(event) if self._run else accepted_run(event)
        self.events.append(event)
        self._stops.take(event)
        return event

    async def _store(self, kind: EventType, payload: Doc) -> None:
        await self._tell(self._add(kind, payload))

    async def _tell(self, *events: Event) -> None:
        for event in events:
            self._call_hooks(event)
        if self._yields:
            await anyio.lowlevel.checkpoint()

    @property
    def _must_stop(self) -> bool:
        return self.run.ending is not None or self.run.is_over

    async def _check(self) -> None:
        if self._must_stop:
            await self._stop_here()

    async def _stop_here(self) -> NoReturn:
        self.hand_over()
        await anyio.sleep_forever()
        raise AssertionError("nothing wakes this up")

    def _settle(self, operation: Operation) -> None:
        if operation.status is OperationStatus.PENDING:
            skipped = {"operationId": operation.operation_id, "status": "skipped", "attempt": operation.attempt}
            self._append(E.TOOL_FINISHED, skipped)
            return
        status = "unknown" if operation.effect == WRITE else "cancelled"
        self._append(E.OPERATION_RECONCILED, {"operationId": operation.operation_id, "status": status})


def _names(operation_id: str, tool_call_id: str | None, tool_name: str, attempt: int) -> Doc:
    return {"operationId": operation_id, "toolCallId": tool_call_id, "toolName": tool_name, "attempt": attempt}
