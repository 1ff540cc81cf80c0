"""The agent loop: model, tool calls, model ... until there is a report.

What comes next is always read from the run's events: an unfinished batch is finished, an open question is
asked, else the model is. So a stretch that begins in the middle of a run goes on where the last one had to
stop, and nothing is done twice. The budgets count what the events say was used.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrun.agent.batch import Batch, is_unfinished, lost, record_fact
from agentrun.agent.compaction import Compaction
from agentrun.agent.context import build_request
from agentrun.agent.events import RequestFinished, ToolRegistered
from agentrun.agent.protocols import (
    Limits,
    Model,
    ModelFailed,
    ModelRequest,
    Question,
    Stretch,
    Tool,
    ToolSpec,
)
from agentrun.agent.registering import registrations
from agentrun.agent.request import Asked, Request
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn
from agentrun.agent.verdicts import failed_checks
from agentrun.records.message import COMPACT
from agentrun.states import OperationStatus as Status

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
        await settle_lost(stretch, stretch.transcript)
        while not await self._step(stretch, stretch.transcript):
            pass

    async def _step(self, stretch: Stretch, transcript: Transcript) -> bool:
        """Does what comes next; returns whether the report is committed."""
        turn = transcript.last
        if turn is None and transcript.input_mode == COMPACT:
            return await self._compact_all(stretch, transcript)
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
        turn = transcript.last
        if turn is None or turn.reply is None:
            return
        before = transcript.calls_used - sum(call.attempt > 0 for call in turn.calls)
        if self._are_too_many(before, len(turn.reply.calls)):
            await stretch.fail(
                f"the budget of {self._limits.max_tool_calls} tool calls is used up "
                f"(max_tool_calls; {before} were made, the model asks for {len(turn.reply.calls)} more)"
            )

    def _are_too_many(self, before: int, more: int) -> bool:
        limit = self._limits.max_tool_calls
        return limit is not None and before + more > limit

    # The model.

    async def _ask_model(self, stretch: Stretch, transcript: Transcript, *, at_rest: bool) -> None:
        """One turn's request. Returns once a reply is recorded, or the user has cancelled the request alone.

        Then the next step asks again: nothing else could become of the run.
        """
        # Checks of a draft are operations too, and have come since.
        await self._check_request(stretch, transcript.catch_up(stretch.events))
        await self._compact_if_due(stretch, transcript)
        specs = self._specs
        turn_id = transcript.next_turn_id

        def calls_for(finished: RequestFinished) -> Sequence[ToolRegistered]:
            # Those that are one too many are not registered: the next step says so.
            if self._are_too_many(transcript.calls_used, len(finished.calls)):
                return ()
            return registrations(stretch, transcript, self._tools, turn_id, finished.calls)

        def build() -> ModelRequest:
            return build_request(self._system, specs, stretch, transcript)

        asked = Asked(build, turn_id, at_rest=at_rest, calls_for=calls_for)
        request = Request(self._model, stretch, transcript, asked)
        with stretch.scope_of(request.operation_id):
            answer = await request.ask()
            if isinstance(answer, ModelFailed):
                await stretch.fail(f"the model {self._model.name} failed: {answer.reason}")

    @property
    def _specs(self) -> list[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    # The history.

    async def _compact_if_due(self, stretch: Stretch, transcript: Transcript) -> None:
        compaction = Compaction(self._model, stretch, transcript, self._limits.compact_above_tokens)
        while (plan := compaction.due(self._system, self._specs)) is not None:
            # If there is no summary, the request sees what it would have seen without.
            await compaction.make(plan)
            await self._check_request(stretch, transcript)

    async def _compact_all(self, stretch: Stretch, transcript: Transcript) -> bool:
        """What a run does that was begun by `compact`; returns whether it is over.

        It is not if the user has said something to it: that is answered then, as in any other run.
        """
        compaction = Compaction(self._model, stretch, transcript, self._limits.compact_above_tokens)
        while (plan := compaction.plan()) is not None:
            error = await compaction.make(plan)
            if error:
                await stretch.fail(f"the history could not be summarised: {error}")
            await self._check_request(stretch, transcript)
        covered = transcript.covered_seq
        words = f"the messages up to {covered} are summarised" if covered else "there was nothing to summarise"
        if await stretch.complete_without_report(words):
            return True
        await self._ask_model(stretch, transcript, at_rest=True)
        return False


def _draft(turn: Turn | None) -> str:
    """Why there is a reply and no report, where that is so."""
    failed = failed_checks(turn) if turn else []
    return f"; the last draft did not pass: {', '.join(check.name for check in failed)}" if failed else ""


async def settle_lost(stretch: Stretch, transcript: Transcript) -> None:
    """Whoever took the run over has settled what was under way. If not, it must not be taken for pending."""
    summary = transcript.open_summary
    if summary is not None:
        lost_request = RequestFinished(
            summary.operation_id, summary.attempt, Status.CANCELLED, None, "", error="executor lost"
        )
        await record_fact(stretch, lost_request)
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
