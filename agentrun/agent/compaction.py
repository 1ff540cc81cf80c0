"""Summarising history, so that what a model sees stays within bounds while the history itself stays as it is.

A pass takes the oldest part that no summary covers: messages from before the run first, then the run's own turns but
for its last one. What the user has said to the run that goes on is never summarised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from agentrun.agent.context import build_request, earlier_text, reply_and_results, uncovered_turns
from agentrun.agent.protocols import ChatMessage, Model, ModelFailed, ModelRequest, Stretch, ToolSpec
from agentrun.agent.request import Asked, Request
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc

SYSTEM = "You summarise conversations between a user and an assistant that works with tools."
INSTRUCTION = (
    "Summarise the conversation above: it will be replaced by your summary, and the assistant goes on with that alone. "
    "Keep what the user wants and does not want, decisions, names, numbers with their sources, what was done and with "
    "which result, what failed, and what is unresolved. Do not add anything. Answer with the summary only."
)

# A token of English is about four characters; of other text it is fewer, so more tokens than estimated.
CHARACTERS_PER_TOKEN = 4
# How much history one pass takes where nothing is configured.
PASS_TOKENS = 50_000
# A pass has to be worth a request: it replaces at least this part of what may be in view.
WORTH = 0.25


class Plan(NamedTuple):
    """A pass: what is to be summarised, and what the summary will cover then."""

    text: str
    covers: Doc


def tokens_of(text: str) -> int:
    """The estimated number of tokens."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


class Compaction:
    """Summarises the history that `stretch` sees. More than `above` tokens in view are too much; None: nothing is."""

    def __init__(self, model: Model, stretch: Stretch, transcript: Transcript, above: int | None) -> None:
        self._model = model
        self._stretch = stretch
        self._transcript = transcript
        self._above = above

    def due(self, system: str, tools: Sequence[ToolSpec]) -> Plan | None:
        """The pass that the next request has to wait for, if it would see too much."""
        if self._above is None or self._transcript.compaction_failed:
            return None
        if self._in_view(system, tools) <= self._above:
            return None
        plan = self.plan()
        return plan if plan and tokens_of(plan.text) >= self._above * WORTH else None

    def plan(self) -> Plan | None:
        """The next pass; None if nothing is left that may be summarised."""
        room = (self._above or PASS_TOKENS) * CHARACTERS_PER_TOKEN
        conversation = self._stretch.conversation
        messages = self._stretch.uncovered(room)
        if messages:
            covers: Doc = {"messageSeq": messages[-1].seq, "runId": None, "eventSeq": None}
            return Plan(_cut("\n\n".join(earlier_text(messages)), room), covers)
        turns = uncovered_turns(conversation, self._transcript)[:-1]
        taken = list(_fitting(turns, room))
        if not taken:
            return None
        kept = self._transcript.turns[self._transcript.turns.index(taken[-1]) + 1]
        covers = {
            "messageSeq": conversation.covered_seq,
            "runId": self._stretch.events[0].run_id,
            "eventSeq": kept.begun_at - 1,
        }
        return Plan(_cut("\n\n".join(map(_turn_text, taken)), room), covers)

    async def make(self, plan: Plan) -> str | None:
        """Makes the pass. Returns why there is no new summary, if there is none; nothing has changed then."""
        stretch = self._stretch
        await stretch.begin_compaction(plan.covers)
        self._transcript.catch_up(stretch.events)
        request = Request(self._model, stretch, self._transcript, Asked(lambda: self._request(plan)))
        text, error = None, "the request was cancelled"
        with stretch.scope_of(request.operation_id):
            answer = await request.ask()
            if isinstance(answer, ModelFailed):
                error = answer.reason
            elif answer.stop_reason != "end_turn" or answer.calls or not answer.text.strip():
                error = f"the model {self._model.name} gave no whole summary"
            else:
                text = answer.text
        await stretch.end_compaction(request.operation_id, plan.covers, text, None if text else error)
        self._transcript.catch_up(stretch.events)
        return None if text else error

    def _request(self, plan: Plan) -> ModelRequest:
        before = self._stretch.conversation.summary
        parts = [f"[Summary of what came before]\n{before}"] if before else []
        parts += [plan.text, INSTRUCTION]
        return ModelRequest(
            system=SYSTEM,
            messages=(ChatMessage("user", "\n\n".join(parts)),),
            tools=(),
            last_input=INSTRUCTION,
            replies=self._transcript.replies,
            results={},
        )

    def _in_view(self, system: str, tools: Sequence[ToolSpec]) -> int:
        """Tokens of the next request: what the model reported of the last one and of its reply, and what came since.

        All of it is estimated where there is no such report, or where a summary has taken the place of a part since.
        """
        request = build_request(system, tools, self._stretch, self._transcript)
        last = self._transcript.last
        reported = self._transcript.tokens_in_view
        if last is None or reported is None or last.begun_at < self._transcript.compacted_at:
            specs = sum(tokens_of(spec.description + json.dumps(spec.parameters)) for spec in tools)
            return tokens_of(system) + specs + sum(map(_tokens_of_message, request.messages))
        since = takewhile(lambda message: message.role != "assistant", reversed(request.messages))
        return reported + sum(map(_tokens_of_message, since))


def _tokens_of_message(message: ChatMessage) -> int:
    return tokens_of(message.text) + sum(tokens_of(call.name + json.dumps(call.arguments)) for call in message.calls)


def _fitting(turns: Iterable[Turn], room: int) -> Iterator[Turn]:
    """The first turns that fit, at least one."""
    used = 0
    for number, turn in enumerate(turns):
        used += len(_turn_text(turn))
        if number and used > room:
            return
        yield turn


def _turn_text(turn: Turn) -> str:
    return "\n\n".join(turn_lines(turn))


def turn_lines(turn: Turn) -> Iterator[str]:
    """What happened in a turn, in words: calls as text, for a model that has no tools here."""
    names = {call.tool_call_id: call for call in turn.calls}
    for message in reply_and_results(turn):
        if message.role == "tool":
            call = names.get(message.call_id)
            yield f"Result of {call.name if call else 'a call'}: {message.text}"
        elif message.role == "assistant":
            yield f"Assistant: {message.text}".rstrip()
            for called in message.calls:
                yield f"Assistant calls {called.name} {json.dumps(called.arguments, ensure_ascii=False)}"
        else:
            yield message.text


def _cut(text: str, room: int) -> str:
    """Within the room, whatever one message or result holds: its beginning and its end say most."""
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
