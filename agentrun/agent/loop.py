"""The agent loop: model, tool calls, model ... until there is a report.

What comes next is always read from the run's events: an unfinished batch is finished, an open question is
asked, else the model is. So a stretch that begins in the middle of a run goes on where the last one had to
stop, and nothing is done twice. The budgets count what the events say was used.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from agentrun.agent.batch import Batch, is_unfinished, lost, pause_after, record_fact
from agentrun.agent.checks import failed_checks
from agentrun.agent.context import build_request
from agentrun.agent.events import RequestFinished
from agentrun.agent.protocols import (
    Limits,
    Model,
    ModelFailed,
    ModelReply,
    Question,
    Stretch,
    Tool,
    ToolCall,
    ToolSpec,
)
from agentrun.agent.transcript import Transcript, Turn
from agentrun.records.codec import Doc
from agentrun.states import OperationStatus as Status

# Attempts of one model request; a service that is overloaded or restarting is mostly back by the third.
MODEL_ATTEMPTS = 3

# A reply that ended like this is no report, whatever text it has.
NO_REPORT = {
    "max_tokens": "the reply was cut off at the model's limit of tokens, and half a report is none",
    "max_turn_requests": "the model gave up: it made as many requests as it may in one turn",
    "refusal": "the model refused to answer",
    "cancelled": "the model stopped before its reply was whole",
}


class LoopAgent:
    """Our own agent: a model and its tools, within limits. `system` is the system prompt."""

    def __init__(self, model: Model, tools: Sequence[Tool], limits: Limits, system: str) -> None:
        self._model = model
        self._tools = {tool.spec.name: tool for tool in tools}
        self._limits = limits
        self._system = system

    async def run(self, stretch: Stretch) -> None:
        """Works until the report is committed. Raises only what `stretch` raises, or a bug of the model."""
        transcript = Transcript().catch_up(stretch.events)
        await settle_lost(stretch, transcript)
        while not await self._step(stretch, transcript.catch_up(stretch.events)):
            pass

    async def _step(self, stretch: Stretch, transcript: Transcript) -> bool:
        """Does what comes next; returns whether the report is committed."""
        turn = transcript.last
        if turn is None or turn.reply is None:
            await self._ask_model(stretch, transcript, at_rest=False)
        elif is_unfinished(turn):
            await self._check_calls(stretch, transcript)
            await Batch(stretch, transcript, self._tools).finish()
        elif turn.reply.question and not (turn.question and turn.question.answered):
            await stretch.ask(Question("question", turn.reply.question))
        elif turn.reply.calls or turn.reply.question:
            # What was stored while the user was asked is delivered with the answer.
            await self._ask_model(stretch, transcript, at_rest=bool(turn.asks))
        elif await self._complete(stretch, turn):
            return True
        else:
            await self._ask_model(stretch, transcript, at_rest=True)
        return False

    async def _complete(self, stretch: Stretch, turn: Turn) -> bool:
        assert turn.reply is not None
        text = turn.reply.text
        reason = NO_REPORT.get(str(turn.reply.stop_reason))
        if reason or not text.strip():
            await stretch.fail(reason or "the model's last reply is empty, so there is no report")
        return await stretch.complete(text)

    # Budgets.

    async def _check_request(self, stretch: Stretch, transcript: Transcript) -> None:
        limits = self._limits
        if limits.max_turns is not None and transcript.turns_used >= limits.max_turns:
            await stretch.fail(
                f"the budget of {limits.max_turns} turns is used up (max_turns){_draft(transcript.last)}"
            )
        if limits.max_tokens is not None and transcript.tokens_used >= limits.max_tokens:
            used = transcript.tokens_used
            await stretch.fail(
                f"the budget of {limits.max_tokens} tokens is used up (max_tokens; {used} were used)"
                f"{_draft(transcript.last)}"
            )

    async def _check_calls(self, stretch: Stretch, transcript: Transcript) -> None:
        limit, turn = self._limits.max_tool_calls, transcript.last
        if limit is None or turn is None or turn.reply is None:
            return
        before = transcript.calls_used - sum(call.attempt > 0 for call in turn.calls)
        if before + len(turn.reply.calls) > limit:
            await stretch.fail(
                f"the budget of {limit} tool calls is used up "
                f"(max_tool_calls; {before} were made, the model asks for {len(turn.reply.calls)} more)"
            )

    # The model.

    async def _ask_model(self, stretch: Stretch, transcript: Transcript, *, at_rest: bool) -> None:
        """One turn's request. Returns once a reply is recorded, or the user has cancelled the request alone.

        Then the next step asks again: nothing else could become of the run.
        """
        # Checks of a draft are operations too, and have come since.
        await self._check_request(stretch, transcript.catch_up(stretch.events))
        request = _Request(self._model, stretch, transcript, at_rest=at_rest)
        with stretch.scope_of(request.operation_id):
            await self._attempts(stretch, request)

    async def _attempts(self, stretch: Stretch, request: _Request) -> None:
        """The attempts of a request, as many as may help."""
        specs = [tool.spec for tool in self._tools.values()]
        for attempt in range(1, MODEL_ATTEMPTS + 1):
            failure = await request.attempt(attempt, self._system, specs)
            if failure is None:
                return
            if not failure.retryable or attempt == MODEL_ATTEMPTS:
                await stretch.fail(f"the model {self._model.name} failed: {failure.reason}")
            await request.pause(attempt)


class _Request:
    """The model request of one turn, over its attempts."""

    def __init__(self, model: Model, stretch: Stretch, transcript: Transcript, *, at_rest: bool) -> None:
        self._model = model
        self._stretch = stretch
        self._transcript = transcript
        self._at_rest = at_rest
        self._turn_id = transcript.next_turn_id
        self.operation_id = transcript.next_operation_id
        self._pieces: list[str] = []
        self._draft_failed = False
        self._pause = 0.0

    async def attempt(self, attempt: int, system: str, tools: Sequence[ToolSpec]) -> ModelFailed | None:
        """One attempt; returns why there is no reply. A stop is recorded, and then goes on."""
        self._pieces = []
        try:
            await self._begin(attempt)
            transcript = self._transcript.catch_up(self._stretch.events)
            request = build_request(system, tools, self._stretch, transcript)
            reply = await self._model.complete(request, self._on_text)
        except ModelFailed as failure:
            self._pause = max(pause_after(attempt), failure.retry_after or 0.0)
            again = failure.retryable and attempt < MODEL_ATTEMPTS
            pause = self._pause if again else None
            await self._finish(attempt, Status.FAILED, error=failure.reason, pause=pause)
            return failure
        except BaseException as error:
            await self._leave(attempt, error)
            raise
        await record_fact(self._stretch, self._finished(attempt, reply))
        return None

    async def pause(self, attempt: int) -> None:
        """Waits before the next attempt: at least as long as its server asked for."""
        try:
            await anyio.sleep(self._pause)
        except BaseException as error:
            await self._leave(attempt, error)
            raise

    async def _begin(self, attempt: int) -> None:
        await self._stretch.begin_request(
            self._model.name,
            turn_id=self._turn_id,
            operation_id=self.operation_id,
            attempt=attempt,
            at_rest=self._at_rest,
        )

    async def _on_text(self, piece: str) -> None:
        self._pieces.append(piece)
        try:
            await self._stretch.draft(self.operation_id, piece)
        except BaseException:
            self._draft_failed = True
            raise

    def _finished(self, attempt: int, reply: ModelReply) -> RequestFinished:
        return RequestFinished(
            operation_id=self.operation_id,
            attempt=attempt,
            status=Status.SUCCEEDED,
            stop_reason=reply.stop_reason,
            text=reply.text,
            calls=_with_unique_ids(reply.calls, self._transcript.call_ids, self._turn_id),
            question=reply.question,
            usage=reply.usage,
            extra=reply.extra,
        )

    async def _finish(self, attempt: int, status: Status, *, error: str | None, pause: float | None = None) -> None:
        finished = RequestFinished(
            self.operation_id,
            attempt,
            status,
            None,
            "".join(self._pieces),
            error=error,
            will_retry=pause is not None,
            pause=pause,
        )
        await record_fact(self._stretch, finished)

    async def _leave(self, attempt: int, error: BaseException) -> None:
        turn = self._transcript.catch_up(self._stretch.events).last
        request = turn.request if turn else None
        if request is None or request.operation_id != self.operation_id or not request.is_open:
            return
        is_bug = isinstance(error, Exception) and not self._draft_failed
        cancelled = self._stretch.cancelled_why(self.operation_id)
        text = f"{type(error).__name__}: {error}" if is_bug else cancelled
        await self._finish(attempt, Status.FAILED if is_bug else Status.CANCELLED, error=text)


def _draft(turn: Turn | None) -> str:
    """Why there is a reply and no report, where that is so."""
    failed = failed_checks(turn) if turn else []
    return f"; the last draft did not pass: {', '.join(check.name for check in failed)}" if failed else ""


def _with_unique_ids(calls: Sequence[ToolCall], taken: set[str], turn_id: str) -> tuple[Doc, ...]:
    """The calls as they are recorded. A model that names two calls alike, or none, gets names made for it:

    each result has to find the one call that it belongs to.
    """
    named: list[Doc] = []
    for number, call in enumerate(calls, start=1):
        call_id = call.call_id if call.call_id and call.call_id not in taken else f"call-{turn_id}-{number}"
        taken.add(call_id)
        named.append({"id": call_id, "name": call.name, "arguments": call.arguments})
    return tuple(named)


async def settle_lost(stretch: Stretch, transcript: Transcript) -> None:
    """Whoever took the run over has settled what was under way. If not, it must not be taken for pending."""
    for turn in list(transcript.turns):
        if turn.request and turn.request.is_open:
            attempt = turn.request.attempt
            event = RequestFinished(
                turn.request.operation_id, attempt, Status.CANCELLED, None, "", error="executor lost"
            )
            await record_fact(stretch, event)
        for call in (*turn.calls, *turn.checks):
            if call.status is Status.RUNNING:
                await record_fact(stretch, lost(call))
