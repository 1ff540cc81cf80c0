"""One model request over its attempts: registered, asked, recorded, and asked again if that may help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import chain, count

from agentrun.agent.batch import record_fact
from agentrun.agent.events import RequestFinished, ToolRegistered
from agentrun.agent.pauses import pause_after, too_long
from agentrun.agent.protocols import Model, ModelFailed, ModelReply, ModelRequest, Stretch, ToolCall
from agentrun.agent.transcript import Transcript
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.states import OperationStatus as Status

# Attempts of one model request; a service that is overloaded or restarting is mostly back by the third.
MODEL_ATTEMPTS = 3


class Asked(NamedTuple):
    """What is asked: `turn_id` None is a request for a summary, which delivers no input and is no draft of a report.

    `build` makes the request once its inputs are delivered; `calls_for` says what is registered with the reply.
    """

    build: Callable[[], ModelRequest]
    turn_id: str | None = None
    at_rest: bool = False
    calls_for: Callable[[RequestFinished], Sequence[ToolRegistered]] = lambda finished: ()


class Request:
    """A model request. `operation_id` is the same over its attempts."""

    def __init__(self, model: Model, stretch: Stretch, transcript: Transcript, asked: Asked) -> None:
        self.operation_id = transcript.next_operation_id
        self._model = model
        self._stretch = stretch
        self._transcript = transcript
        self._asked = asked
        self._pieces: list[str] = []
        self._draft_failed = False
        self._pause = 0.0

    async def ask(self) -> ModelReply | ModelFailed:
        """The reply, once it is recorded, or why there is none after the attempts that may help.

        A stop is recorded, and then goes on.
        """
        for attempt in range(1, MODEL_ATTEMPTS + 1):
            answer = await self._attempt(attempt)
            if isinstance(answer, ModelReply) or not answer.retryable or attempt == MODEL_ATTEMPTS:
                return answer
            await self._wait(attempt)
        raise AssertionError("the last attempt returns")

    async def _attempt(self, attempt: int) -> ModelReply | ModelFailed:
        self._pieces = []
        try:
            await self._begin(attempt)
            self._transcript.catch_up(self._stretch.events)
            reply = await self._model.complete(self._asked.build(), self._on_text)
        except ModelFailed as failure:
            failure = self._without_hope(failure)
            self._pause = pause_after(attempt, failure.retry_after)
            again = failure.retryable and attempt < MODEL_ATTEMPTS
            pause = self._pause if again else None
            await self._finish(attempt, Status.FAILED, error=failure.reason, pause=pause)
            return failure
        except BaseException as error:
            await self._leave(attempt, error)
            raise
        finished = self._finished(attempt, reply)
        await record_fact(self._stretch, finished, *self._asked.calls_for(finished))
        return reply

    def _without_hope(self, failure: ModelFailed) -> ModelFailed:
        """The same failure, or one that is not tried again since its server asks for more patience than there is."""
        why = too_long(failure.retry_after, self._stretch.time_left()) if failure.retryable else None
        return ModelFailed(f"{failure.reason} ({why})") if why else failure

    async def _wait(self, attempt: int) -> None:
        """Waits before the next attempt: at least as long as its server asked for."""
        import anyio

        try:
            await anyio.sleep(self._pause)
        except BaseException as error:
            await self._leave(attempt, error)
            raise

    async def _begin(self, attempt: int) -> None:
        await self._stretch.begin_request(
            self._model.name,
            turn_id=self._asked.turn_id,
            operation_id=self.operation_id,
            attempt=attempt,
            at_rest=self._asked.at_rest,
        )

    async def _on_text(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._asked.turn_id is None:
            return
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
            calls=_with_unique_ids(reply.calls, self._transcript.call_ids, self._asked.turn_id or "summary"),
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
        request = self._transcript.catch_up(self._stretch.events).request_of(self.operation_id)
        if request is None or not request.is_open:
            return
        is_bug = isinstance(error, Exception) and not self._draft_failed
        cancelled = self._stretch.cancelled_why(self.operation_id)
        text = f"{type(error).__name__}: {error}" if is_bug else cancelled
        await self._finish(attempt, Status.FAILED if is_bug else Status.CANCELLED, error=text)


def _with_unique_ids(calls: Sequence[ToolCall], taken: Set[str], turn_id: str) -> tuple[Doc, ...]:
    """The calls as they are recorded. A model that names two calls alike, or none, gets names made for it:

    each result has to find the one call that it belongs to.
    """
    named: list[Doc] = []
    new: set[str] = set()
    for number, call in enumerate(calls, start=1):
        # It sees the names that were made before, and may have made up the next of them by itself.
        names = chain([call.call_id] if call.call_id else [], _made_names(f"call-{turn_id}-{number}"))
        call_id = next(name for name in names if name not in taken and name not in new)
        new.add(call_id)
        named.append({"id": call_id, "name": call.name, "arguments": call.arguments})
    return tuple(named)


def _made_names(first: str) -> Iterator[str]:
    yield first
    yield from (f"{first}-{again}" for again in count(2))
