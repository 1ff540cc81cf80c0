"""The turns of a run whose agent is a program from outside: asked, recorded, answered, completed.

What comes next is read from the run's events, as in our own loop. One thing differs: such an agent acts by itself, so
a turn that was broken off half-way may have done things that nobody recorded. It is not begun again unless the user
says so, or its configuration says that it changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from agentrun.adapters.agents.activity import Activity
from agentrun.agent.batch import record_fact
from agentrun.agent.events import RequestFinished, ToolFinished
from agentrun.agent.loop import NO_REPORT, settle_lost
from agentrun.agent.protocols import Question, Stretch
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Ask, Turn
from agentrun.agent.verdicts import failed_checks
from agentrun.records.codec import Doc
from agentrun.states import OperationStatus as Status

# Reports in a row that may fail their checks before the run does.
DRAFTS = 5


# Characters of one turn; an agent that says more is stopped. A bigger result is a file, which the report can name.
MAX_TEXT = 8 * 1024 * 1024
# In the `extra` of a reply with which an agent's turn was not over: it waited for the user.
PAUSED = "paused"


class Said(NamedTuple):
    """What the agent said in one turn. With a `question` the run waits for its answer, else `text` is the report."""

    text: str
    question: str | None = None
    stop_reason: str = "end_turn"
    usage: Doc | None = None
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory


class AgentFailed(Exception):
    """The agent ended its turn without a reply that counts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Exchange:
    """One turn under way: what the agent is told, and where what it does is recorded."""

    def __init__(self, stretch: Stretch, transcript: Transcript, name: str) -> None:
        self.stretch = stretch
        self.transcript = transcript
        self.operation_id = transcript.next_operation_id
        self.turn_id = transcript.next_turn_id
        self.activity = Activity(stretch, transcript, lambda: self.turn_id)
        self.draft_failed = False
        self.said_before = ""
        self._name = name
        self._pieces: list[str] = []
        self._length = 0

    async def begin(self, *, at_rest: bool) -> None:
        """Delivers what the user has said, and registers the request."""
        await self.stretch.begin_request(
            self._name, turn_id=self.turn_id, operation_id=self.operation_id, attempt=1, at_rest=at_rest
        )
        self.transcript.catch_up(self.stretch.events)

    async def put(self, question: Question) -> Ask:
        """Asks the user in the middle of the agent's turn.

        What it has said so far ends one request, and another one begins with the answer: a run that waits has no
        request under way. Does not return if nobody is there; the next stretch goes on then.
        """
        await self._pause(question.text if question.kind == "question" else None)
        await self.stretch.ask(question)
        turn = self.transcript.catch_up(self.stretch.events).last
        assert turn
        await self._go_on()
        return turn.asks[-1]

    async def divide(self) -> None:
        """Delivers what the user has said in the middle of the agent's turn: one request ends, another one begins."""
        await self._pause(None)
        await self._go_on()

    async def _pause(self, question: str | None) -> None:
        said = RequestFinished(
            self.operation_id, 1, Status.SUCCEEDED, None, self.text, question=question, extra={PAUSED: True}
        )
        await record_fact(self.stretch, said)

    async def _go_on(self) -> None:
        self.transcript.catch_up(self.stretch.events)
        self.said_before, self._pieces = self.text or self.said_before, []
        self.operation_id, self.turn_id = self.transcript.next_operation_id, self.transcript.next_turn_id
        await self.begin(at_rest=False)

    def last_inputs(self) -> str:
        """All that was delivered with the request under way."""
        turn = self.transcript.last
        return "\n\n".join(self.stretch.input(seq).text for seq in sorted(turn.inputs)) if turn else ""

    def last_input(self) -> str:
        """What the user has said last."""
        turn = self.transcript.last
        return self.stretch.input(max(turn.inputs)).text if turn and turn.inputs else ""

    @property
    def text(self) -> str:
        """What the agent has said so far."""
        return "".join(self._pieces)

    async def say(self, piece: str) -> None:
        """The agent says more. Raises AgentFailed if that is more than anybody has to say."""
        if not piece:
            return
        self._length += len(piece)
        if self._length > MAX_TEXT:
            raise AgentFailed(f"it said more than {MAX_TEXT} characters")
        self._pieces.append(piece)
        try:
            await self.stretch.draft(self.operation_id, piece)
        except BaseException:
            self.draft_failed = True
            raise


class Turns:
    """The turns of one stretch. `ask` has the agent do one turn; it raises AgentFailed.

    `repeatable` says that a turn that was broken off may be begun again without asking.
    """

    def __init__(
        self, stretch: Stretch, name: str, ask: Callable[[Exchange], Awaitable[Said]], *, repeatable: bool
    ) -> None:
        self._stretch = stretch
        self._name = name
        self._ask = ask
        self._repeatable = repeatable
        self._transcript = stretch.transcript

    async def run(self) -> None:
        """Works until the report is committed."""
        await settle_lost(self._stretch, self._transcript.catch_up(self._stretch.events))
        await self._skip_what_was_left()
        while not await self._step(self._transcript.catch_up(self._stretch.events).last):
            pass

    async def _skip_what_was_left(self) -> None:
        """A call that waited when its agent was stopped: no other will make it under that name."""
        for turn in list(self._transcript.catch_up(self._stretch.events).turns):
            for call in turn.calls:
                if call.status is Status.PENDING:
                    event = ToolFinished(call.operation_id, 0, Status.SKIPPED, error="its agent was stopped before it")
                    await record_fact(self._stretch, event)

    async def _step(self, turn: Turn | None) -> bool:
        """Does what comes next; returns whether the report is committed."""
        if turn is None or turn.request is None:
            await self._request(at_rest=False)
        elif turn.reply is None:
            await self._after_break(turn)
        elif turn.reply.extra.get(PAUSED) and not turn.reply.question:
            # Its agent was stopped while it waited for a permission, and asks again for it if it still wants it.
            await self._request(at_rest=True)
        elif turn.reply.question and not (turn.question and turn.question.answered):
            await self._stretch.ask(Question("question", turn.reply.question))
        elif turn.reply.question:
            # What was stored while the user was asked is delivered with the answer.
            await self._request(at_rest=True)
        elif await self._complete(turn):
            return True
        else:
            await self._request(at_rest=True)
        return False

    async def _after_break(self, turn: Turn) -> None:
        if self._repeatable or (turn.question and turn.question.answered):
            await self._request(at_rest=bool(turn.asks))
            return
        await self._stretch.ask(
            Question(
                "question",
                f"The agent {self._name} was stopped half-way, and nobody knows how much it had done. "
                "Say what it is to do now; it will be started again with that.",
            )
        )

    async def _complete(self, turn: Turn) -> bool:
        assert turn.reply is not None
        reason = NO_REPORT.get(str(turn.reply.stop_reason))
        if reason or not turn.reply.text.strip():
            await self._stretch.fail(reason or f"the agent {self._name} said nothing, so there is no report")
        return await self._stretch.complete(turn.reply.text)

    async def _request(self, *, at_rest: bool) -> None:
        """One turn of the agent. Returns once its reply is recorded."""
        # Checks of a draft are operations too, and have come since.
        await self._check_drafts(self._transcript.catch_up(self._stretch.events))
        exchange = Exchange(self._stretch, self._transcript, self._name)
        try:
            await exchange.begin(at_rest=at_rest)
            said = await self._ask(exchange)
        except AgentFailed as failure:
            await self._end(exchange, Status.FAILED, error=failure.reason)
            await self._stretch.fail(f"the agent {self._name} failed: {failure.reason}")
        except BaseException as error:
            is_bug = isinstance(error, Exception) and not exchange.draft_failed
            text = f"{type(error).__name__}: {error}" if is_bug else None
            await self._end(exchange, Status.FAILED if is_bug else Status.CANCELLED, error=text)
            raise
        await exchange.activity.close("the agent said no more of it", stopped=False)
        await record_fact(self._stretch, _reply(exchange.operation_id, said))

    def _is_open(self, operation_id: str) -> bool:
        last = self._transcript.catch_up(self._stretch.events).last
        request = last.request if last else None
        return request is not None and request.operation_id == operation_id and request.is_open

    async def _check_drafts(self, transcript: Transcript) -> None:
        """Such an agent has no budget of turns, so it gets only so many tries to pass its checks."""
        last = transcript.turns[-DRAFTS:]
        if len(last) == DRAFTS and all(failed_checks(turn) for turn in last):
            names = ", ".join(check.name for check in failed_checks(last[-1]))
            await self._stretch.fail(f"{DRAFTS} reports in a row did not pass: {names}")

    async def _end(self, exchange: Exchange, status: Status, *, error: str | None) -> None:
        await exchange.activity.close("its agent was stopped", stopped=True)
        if not self._is_open(exchange.operation_id):
            return  # the stop came before the request was registered, or while the user was asked
        event = RequestFinished(exchange.operation_id, 1, status, None, exchange.text, error=error)
        await record_fact(self._stretch, event)


def _reply(operation_id: str, said: Said) -> RequestFinished:
    return RequestFinished(
        operation_id=operation_id,
        attempt=1,
        status=Status.SUCCEEDED,
        stop_reason=said.stop_reason,
        text=said.text,
        question=said.question,
        usage=said.usage,
        extra=said.extra,
    )
