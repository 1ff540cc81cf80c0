"""The three things that can be replaced - Agent, Model, Tool - and what the executor offers to an agent.

Each has one method. Whoever writes one never sees the disk: all that must be remembered goes through
`Stretch`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import BinaryIO, Literal, NoReturn, Protocol, runtime_checkable

from agentrun.agent.events import AgentEvent
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.states import OperationStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Whoever only reads what an agent did needs no event loop, and is faster without.
    import anyio

    from agentrun.agent.transcript import Transcript

# The five stop reasons of the Agent Client Protocol, version 1, "Prompt turn".
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


# Why a call is skipped when a steer has come: the model decides anew, knowing it.
STEERED = "the user has said something new"


class ToolCall(NamedTuple):
    """A call that the model asks for; `call_id` is the model's own name for it.

    `arguments` is the text as it came where that is no JSON object.
    """

    call_id: str
    name: str
    arguments: Doc | str


class ChatMessage(NamedTuple):
    """One message of a model request; of a `tool` message, `call_id` names the call."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class ToolSpec(NamedTuple):
    """What a model is told of a tool, and what the loop must know to run it.

    `timeout` is in seconds per attempt, `retries` the number of further attempts.
    """

    name: str
    description: str
    parameters: Doc
    effect: Literal["read", "write"] = "write"
    approve: Literal["auto", "ask", "deny"] = "ask"
    resource: str | None = None
    timeout: float | None = None
    retries: int = 0


class ModelReply(NamedTuple):
    """A whole reply. `question` asks the user; a reply with neither calls nor question is the final one.

    `extra` is stored with the reply and comes back in `ModelRequest.replies`.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    question: str | None = None
    stop_reason: StopReason = "end_turn"
    usage: Doc | None = None
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory


class ModelRequest(NamedTuple):
    """All that a model sees, valid at every point: each call has exactly one result.

    `replies` are this run's earlier replies, `last_input` the text of the user input that was delivered last,
    `results` the result of the last finished call of each tool by its name. `reply_schema` is a JSON schema that
    the reply's text has to keep to, for a model that can be held to one.
    """

    system: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...]
    last_input: str
    replies: tuple[ModelReply, ...]
    results: dict[str, str]
    reply_schema: Doc | None = None


class ModelFailed(Exception):
    """A model request gave no reply; `retryable` says whether another attempt may help.

    `retry_after` is how many seconds its server wants to be left alone first, if it has said so.
    """

    def __init__(self, reason: str, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.retry_after = retry_after


@runtime_checkable
class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The name under which requests are recorded."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The reply to `request`; text is handed to `on_text` piece by piece as it comes.

        Cancelling the surrounding scope must close the connection. Raises ModelFailed.
        """


def never() -> bool:
    """Nobody asks for haste."""
    return False


@runtime_checkable
class Opened(Protocol):
    """What a Model or a Tool may be besides, if it holds something for as long as a stretch lasts."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """The block in which it can be used. What it holds is let go at the end of the block, also of a stopped one."""


async def nothing_first() -> None:
    """Nothing has to be done before a tool is ended."""


class Invocation(NamedTuple):
    """One attempt of one tool call. The idempotency key is the same in every attempt.

    Once the call is stopped, `is_forced` says that what it started is to be killed without a grace period; that may
    become true while the grace period runs. `is_alone` says that it alone is stopped, and its run goes on.
    `before_ending` is waited for before its processes are ended: it ends the child runs that the call began, by
    their own flow.
    """

    operation_id: str
    arguments: Doc
    idempotency_key: str
    attempt: int
    is_forced: Callable[[], bool] = never
    before_ending: Callable[[], Awaitable[None]] = nothing_first
    is_alone: Callable[[], bool] = never


class ToolOutcome(NamedTuple):
    """How an attempt ended.

    `retryable` says that it may be tried again inside the budget, and of a write that it did not happen;
    `note` says what else there is to know of an attempt, also of one that succeeded (its output was cut);
    `shown` what the model is shown of an output that it can do nothing with, which is then kept in a blob.
    """

    status: OperationStatus
    output: BinaryIO | bytes = b""
    error: str | None = None
    may_have_effects: bool = False
    retryable: bool = False
    note: str | None = None
    shown: str | None = None


@runtime_checkable
class Tool(Protocol):
    """Something the model can call."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """Runs one attempt to its end; failures of the tool are outcomes, not exceptions.

        When the surrounding scope is cancelled, everything that was started is ended first, then
        `on_stopped` is told what is known of the attempt, then the cancellation goes on.
        """


class Question(NamedTuple):
    """Something only the user can say. `operation_id` names the call that an approval is for."""

    kind: Literal["question", "approval"]
    text: str
    operation_id: str | None = None


class Conversation(NamedTuple):
    """What came before this run, as far as the context layer may choose from it.

    `messages` are the session's messages before the run's prompt, oldest first (the newest of them if there
    are many); `reports` the cited reports by run id; `summary` what is known of still earlier history: it stands
    for the messages up to `covered_seq`, and for this run's turns that begin not after its event `covered_events`.
    """

    messages: Sequence[Message]
    reports: dict[str, str]
    summary: str | None = None
    covered_seq: int = 0
    covered_events: int = 0


class Limits(NamedTuple):
    """Budgets of one run; None is no limit. Seconds for times."""

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    compact_above_tokens: int | None = None


class RemoteIds(Protocol):
    """Under which ids services outside know this session, so that a later run goes on in the same conversation.

    `name` says which service, such as `acp:` and the agent's name. The ids belong to the session, not to the run.
    """

    def get(self, name: str) -> str | None:
        """The id that was kept last under `name`, by whatever run; None if there is none."""

    def keep(self, name: str, value: str) -> None:
        """Stores an id, durable when this returns: to be called as soon as it is known, before it is used.

        Raises FencedOut if another executor has taken the run over; an agent lets that pass.
        """


class Stretch(Protocol):
    """One stretch of executing one run: from a claim of the lease until the run ends or waits.

    Every method stores what it is told before it returns, and raises when the run must not go on: the
    executor then cancels the scope in which the agent runs, and shielded clean-up may still `record` facts.
    """

    @property
    def conversation(self) -> Conversation:
        """What came before this run."""

    @property
    def remote_ids(self) -> RemoteIds:
        """Under which ids services outside know this session."""

    @property
    def events(self) -> Sequence[Event]:
        """The run's events so far, in order; grows as the agent works."""

    @property
    def transcript(self) -> Transcript:
        """What has happened so far, as `events` tell it; the same at each look, so that it takes up each event once."""

    def input(self, message_seq: int) -> Message:
        """The message of an `input.delivered` event."""

    async def begin_request(
        self, model: str, *, turn_id: str | None, operation_id: str, attempt: int, at_rest: bool
    ) -> None:
        """Delivers waiting input and registers a model request, in one step.

        Without a `turn_id` the request is for a summary, and nothing is delivered.

        Prompts, answers and steers are always delivered; follow-ups only `at_rest`, when the model has
        nothing more to call.
        """

    async def draft(self, operation_id: str, text: str) -> None:
        """More streamed text of a model request that is under way."""

    async def record(self, *events: AgentEvent) -> None:
        """Stores what happened, in one step. Returns when it is safe to build on it.

        A fact is stored before a cancellation of the surrounding scope is felt.
        What was registered after a fact is left out where the run must not go on; what was registered alone does not
        return then.
        """

    async def start_call(self, operation_id: str, tool_call_id: str | None, tool_name: str, attempt: int) -> str | None:
        """Registers that a tool call is about to be dispatched. Returns None to go ahead.

        Otherwise nothing was stored, the call must not start, and the text says why (a steer has come).
        """

    async def ensure_going_on(self) -> None:
        """Looks once more before a call is sent off that was started when it was registered."""

    def time_left(self) -> float | None:
        """Seconds that the run may still execute; None is no limit."""

    def is_steered(self) -> bool:
        """Whether the user has said something that nothing further of this reply may start before."""

    def scope_of(self, operation_id: str) -> AbstractContextManager[anyio.CancelScope]:
        """The scope in which a model request or a call is made: cancelled if the user cancels that operation alone.

        The agent records what became of the operation, and goes on.
        """

    def cancelled_why(self, operation_id: str) -> str | None:
        """Who cancelled that operation and why, or None if nobody did."""

    def is_forced(self, operation_id: str) -> bool:
        """Whether what is stopped of the operation gets no grace period: the user wants it killed."""

    async def stop_children(self, operation_id: str) -> None:
        """Ends the child runs that the call began, by their own flow, and returns when they are over."""

    async def ask(self, question: Question) -> None:
        """Asks the user, and returns once the answer is stored: the next request delivers it.

        The answer to an approval is the `run.input_received` with `approved`. Does not return if nobody is
        there to wait: the run then waits on disk, and another stretch goes on.
        """

    async def complete(self, report: str) -> bool:
        """Has the report checked, commits it and ends the run.

        What is delivered states its gaps: calls that gave no result are appended, from the record. False if input has
        come, or a check has failed (`agent.verdicts.failed_checks`): the model must answer to that first.
        """

    def uncovered(self, characters: int) -> Sequence[Message]:
        """The oldest messages before this run that no summary covers and a summary may cover.

        As many as have so many characters, at least one if there is any. Inputs that reached no run are left alone.
        """

    async def begin_compaction(self, covers: Doc) -> None:
        """Says that a summary is being made that will cover `{messageSeq runId eventSeq}`."""

    async def end_compaction(self, operation_id: str, covers: Doc, text: str | None, error: str | None) -> None:
        """Puts the summary that `operation_id` made in place; without a `text` nothing changes, and `error` says why.

        `conversation` is what it is then.
        """

    async def complete_without_report(self, reason: str) -> bool:
        """Ends a run whose `inputMode` is `compact`. False if input has come, which must be answered first."""

    async def fail(self, reason: str) -> NoReturn:
        """Says that the run cannot go on: it winds down and ends as failed. Does not return."""


@runtime_checkable
class Agent(Protocol):
    """Whatever drives a run: our loop, an external agent, a plug-in."""

    async def run(self, stretch: Stretch) -> None:
        """Works until `stretch.complete` has returned True, or until the run must not go on."""
