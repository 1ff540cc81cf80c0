"""Runs the calls of one reply, all at the same time, and records what became of each.

Whatever happens - a tool fails, a steer comes, the run is stopped, the executor goes - each call that was
started has its fact recorded before `finish` is left. What is still to be done is read from the events, so
another stretch finishes a batch that this one had to leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from agentrun.agent.events import RemoteIdLearned, RequestFinished, ToolFinished, ToolRegistered
from agentrun.agent.pauses import pause_after
from agentrun.agent.protocols import STEERED, Invocation, Question, Stretch, Tool, ToolOutcome
from agentrun.agent.registering import registrations
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn
from agentrun.records.operation import DENIED, NOT_ALLOWED, WRITE, Operation
from agentrun.states import OPEN_OPERATION
from agentrun.states import OperationStatus as Status

# Characters of a call's arguments in the question for an approval; the rest is in the record.
SHOWN_ARGUMENTS = 2000


def is_unfinished(turn: Turn) -> bool:
    """Whether the reply of `turn` asks for calls that have no outcome yet."""
    if turn.reply is None:
        return False
    calls = [turn.call_of(str(call["id"])) for call in turn.reply.calls]
    return any(call is None or call.is_open for call in calls)


async def record_fact(stretch: Stretch, event: RequestFinished | ToolFinished, *follows: ToolRegistered) -> None:
    """Stores what has already happened, and what follows from it, if the run goes on.

    No cancellation comes in between: a stretch sees to that, and the fact would be lost otherwise.
    """
    await stretch.record(event, *follows)


def the_one(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception itself where there is only one, or several tasks were told the same; else the group."""
    leaves = list(_leaves(group))
    return leaves[0] if len({type(leaf) for leaf in leaves}) == 1 else group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


class Batch:
    """The calls of the newest turn of `transcript`."""

    def __init__(self, stretch: Stretch, transcript: Transcript, tools: Mapping[str, Tool]) -> None:
        self._stretch = stretch
        self._transcript = transcript
        self._tools = tools
        self._sent_off: set[str] = set()  # and not recorded as ended

    async def finish(self) -> None:
        """Returns when each call has its outcome. Cancelling it records what is known of each."""
        import anyio

        try:
            await self._register()
            await self._skip_hopeless()
            # A call that is under way was started together with its registration, and waits to be sent off: what an
            # executor that is gone left so was settled before.
            ready = [
                each for each in self._turn.calls if each.status in OPEN_OPERATION and not self._needs_approval(each)
            ]
            await self._run(ready)
            await self._run(await self._approved())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._leave()
            raise

    @property
    def _turn(self) -> Turn:
        turn = self._transcript.catch_up(self._stretch.events).last
        assert turn is not None
        return turn

    def _pending(self) -> list[Operation]:
        return [call for call in self._turn.calls if call.status is Status.PENDING]

    # Before anything starts.

    async def _register(self) -> None:
        turn = self._turn
        new = [call for call in (turn.reply.calls if turn.reply else ()) if turn.call_of(str(call["id"])) is None]
        if new:
            registered = registrations(self._stretch, self._transcript, self._tools, turn.turn_id, new)
            await self._stretch.record(*registered)

    async def _skip_hopeless(self) -> None:
        turn = self._turn
        for call in self._pending():
            reason = self._hopeless(turn, call)
            if reason:
                await self._skip(call, reason)

    def _hopeless(self, turn: Turn, call: Operation) -> str | None:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"there is no tool {call.name!r}; the tools are: {', '.join(self._tools) or 'none'}"
        asked = next((each for each in turn.reply.calls if each["id"] == call.tool_call_id), {}) if turn.reply else {}
        if not isinstance(asked.get("arguments"), dict):
            return f"its arguments are no JSON object: {str(asked.get('arguments'))[:200]!r}"
        return NOT_ALLOWED if tool.spec.approve == "deny" else None

    async def _skip(self, call: Operation, reason: str) -> None:
        await record_fact(self._stretch, _never_started(call, reason))

    # Approvals.

    def _needs_approval(self, call: Operation) -> bool:
        # A call that was started once was approved then; this is another attempt of it.
        return self._tools[call.name].spec.approve == "ask" and call.attempt == 0

    async def _approved(self) -> list[Operation]:
        """The calls that wait for an approval and get it, asked for one after the other."""
        approved = []
        for call in self._pending():
            # A call that will not start any more must not be asked about.
            reason = STEERED if self._stretch.is_steered() else self._stretch.cancelled_why(call.operation_id)
            if reason:
                await self._skip(call, reason)
            elif await self._is_approved(call):
                approved.append(call)
        return approved

    async def _is_approved(self, call: Operation) -> bool:
        answer = self._turn.approval_of(call.operation_id)
        if answer is None or not answer.answered:
            await self._stretch.ask(Question("approval", approval_text(call), call.operation_id))
            answer = self._turn.approval_of(call.operation_id)
        if answer and answer.approved:
            return True
        note = f": {answer.note}" if answer and answer.note else ""
        await self._skip(call, f"{DENIED}{note}")
        return False

    # Running.

    async def _run(self, calls: list[Operation]) -> None:
        if len(calls) < 2:
            # Most replies ask for one call: it needs no task of its own.
            for call in calls:
                await self._call(call, self._tools[call.name])
            return
        import anyio

        try:
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(self._call, call, self._tools[call.name])
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None

    async def _call(self, call: Operation, tool: Tool) -> None:
        """Makes the call, unless the user cancels it: then that is its outcome, and its siblings go on."""
        with self._stretch.scope_of(call.operation_id) as scope:
            await self._attempts(call, tool)
        if scope.cancelled_caught:
            left = self._turn.call(call.operation_id)
            if left.is_open:  # it was not being attempted
                reason = self._stretch.cancelled_why(call.operation_id) or "cancelled"
                await record_fact(self._stretch, _not_sent_off(left, reason))

    async def _attempts(self, call: Operation, tool: Tool) -> None:
        """Attempts the call until there is an outcome that stands."""
        import anyio

        attempt, error = call.attempt, call.error
        is_started = call.status is Status.RUNNING
        while True:
            attempt += not is_started
            stopped = await (self._look_again(call) if is_started else self._start(call, attempt, error))
            is_started = False
            if stopped is not None:
                await record_fact(self._stretch, stopped)
                return
            outcome = await self._attempt(call, tool, attempt)
            again = _may_be_tried_again(tool, outcome) and attempt <= tool.spec.retries
            pause = pause_after(attempt) if again else None
            await self._record(call, attempt, outcome, pause=pause)
            if pause is None:
                return
            error = outcome.error
            await anyio.sleep(pause)

    async def _look_again(self, call: Operation) -> ToolFinished | None:
        """Of a call that was started with its registration: what to record if it must not be sent off."""
        await self._stretch.ensure_going_on()
        reason = self._stretch.cancelled_why(call.operation_id)
        return _not_sent_off(call, reason) if reason else None

    async def _start(self, call: Operation, attempt: int, error: str | None) -> ToolFinished | None:
        """Registers that a call is sent off now; what to record if it must not be. `error` is of the attempt before."""
        refusal = await self._stretch.start_call(call.operation_id, call.tool_call_id, call.name, attempt)
        if refusal is None:
            return None
        return _never_started(call._replace(attempt=attempt - 1, error=error), refusal)

    async def _attempt(self, call: Operation, tool: Tool, attempt: int) -> ToolOutcome:
        """One attempt. If it is stopped, what is known of it is recorded here, and the stop goes on."""
        invocation = Invocation(
            call.operation_id,
            call.arguments or {},
            call.idempotency_key or "",
            attempt,
            is_forced=lambda: self._stretch.is_forced(call.operation_id),
            before_ending=lambda: self._stretch.stop_children(call.operation_id),
            is_alone=lambda: self._is_stopped_alone(call),
        )
        remote_ids = _RemoteIds(self._stretch, call.operation_id)
        known: list[ToolOutcome] = []
        self._sent_off.add(call.operation_id)
        try:
            return await tool.call(invocation, remote_ids.store, known.append)
        # A bug in an adapter must neither end the siblings of the call nor hide that it was made.
        except Exception as error:
            if remote_ids.failure is None:
                return _broken(call, error)
            await self._record(call, attempt, known[0] if known else _stopped(call))
            raise
        except BaseException:
            stopped = known[0] if known else _stopped(call)
            if stopped.status is not Status.SUCCEEDED:
                stopped = stopped._replace(error=stopped.error or self._stretch.cancelled_why(call.operation_id))
            await self._record(call, attempt, stopped)
            raise

    def _is_stopped_alone(self, call: Operation) -> bool:
        cancelled = self._stretch.cancelled_why(call.operation_id) is not None
        return cancelled and not self._transcript.catch_up(self._stretch.events).is_ending

    async def _record(self, call: Operation, attempt: int, outcome: ToolOutcome, *, pause: float | None = None) -> None:
        """Stores how an attempt ended; after a `pause`, in seconds, there will be another."""
        finished = ToolFinished(
            operation_id=call.operation_id,
            attempt=attempt,
            status=outcome.status,
            output=outcome.output,
            error=outcome.error,
            may_have_effects=outcome.may_have_effects,
            will_retry=pause is not None,
            note=outcome.note,
            pause=pause,
            shown=outcome.shown,
        )
        try:
            await record_fact(self._stretch, finished)
            # An executor that was fenced out could not store it: the call was sent off all the same.
            if self._turn.call(call.operation_id).status is not Status.RUNNING:
                self._sent_off.discard(call.operation_id)
        finally:
            if not isinstance(outcome.output, bytes):
                outcome.output.close()

    # Leaving early.

    async def _leave(self) -> None:
        """Settles what will not happen any more. What another stretch can still do stays as it is."""
        turn = self._turn
        for call in turn.calls:
            if call.status is Status.RUNNING and call.operation_id not in self._sent_off:
                # Its start was stored, and then the stop came: nothing was sent off.
                stopped = "it was stopped before it was sent off"
                await self._stretch.record(
                    ToolFinished(call.operation_id, call.attempt, Status.CANCELLED, error=stopped)
                )
            elif call.status is Status.PENDING and self._transcript.is_ending:
                await self._stretch.record(_never_started(call, "the run was stopped before it started"))


class _RemoteIds:
    """Stores the ids that a tool learns, and remembers if that was refused: then the run must not go on."""

    def __init__(self, stretch: Stretch, operation_id: str) -> None:
        self.failure: BaseException | None = None
        self._stretch = stretch
        self._operation_id = operation_id

    async def store(self, remote_id: str) -> None:
        try:
            await self._stretch.record(RemoteIdLearned(self._operation_id, remote_id))
        except BaseException as error:
            self.failure = error
            raise


def approval_text(call: Operation) -> str:
    """What the user is asked before a call that needs an approval."""
    arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
    if len(arguments) > SHOWN_ARGUMENTS:
        arguments = f"{arguments[:SHOWN_ARGUMENTS]} ... ({len(arguments)} characters)"
    on = f" on {call.resource}" if call.resource else ""
    return f"May {call.name} be called ({call.effect}{on})? Its arguments: {arguments}"


def lost(call: Operation) -> ToolFinished:
    """What is recorded of a call that was under way in an executor that is gone, if nobody knows more."""
    if call.effect == WRITE:
        return ToolFinished(
            call.operation_id, call.attempt, Status.UNKNOWN, error="executor lost", may_have_effects=True
        )
    return ToolFinished(call.operation_id, call.attempt, Status.CANCELLED, error="executor lost")


def _never_started(call: Operation, reason: str) -> ToolFinished:
    if call.attempt == 0:
        return ToolFinished(call.operation_id, 0, Status.SKIPPED, error=reason)
    before = f"attempt {call.attempt} failed ({call.error})" if call.error else f"attempt {call.attempt} failed"
    return ToolFinished(
        call.operation_id, call.attempt, Status.CANCELLED, error=f"{before} and was the last one: {reason}"
    )


def _not_sent_off(call: Operation, reason: str) -> ToolFinished:
    if call.status is Status.RUNNING:  # its start was stored, and nothing followed
        return ToolFinished(call.operation_id, call.attempt, Status.CANCELLED, error=reason)
    return _never_started(call, reason)


def _may_be_tried_again(tool: Tool, outcome: ToolOutcome) -> bool:
    # A write that may have happened must not happen twice, whatever its tool says.
    return outcome.retryable and not (tool.spec.effect == WRITE and outcome.may_have_effects)


def _stopped(call: Operation) -> ToolOutcome:
    """Of a tool that was stopped without saying what it had done."""
    return ToolOutcome(Status.CANCELLED, may_have_effects=call.effect == WRITE)


def _broken(call: Operation, error: Exception) -> ToolOutcome:
    text = f"the tool's adapter failed: {type(error).__name__}: {error}"
    return ToolOutcome(Status.FAILED, error=text, may_have_effects=call.effect == WRITE)
