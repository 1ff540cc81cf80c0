"""A model that says what a file tells it to (see `script`): every example and test is then the same each time.

The first turn that was not used yet in this run and whose `ifContains` occurs in the user's last input is the reply;
which turns were used is told by the run's events, so the script goes on where it was after any interruption.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable

from agentrun.adapters.models.script import ScriptedTurn
from agentrun.agent.protocols import ModelFailed, ModelReply, ModelRequest, ToolCall
from agentrun.records.codec import Doc

_WORD = re.compile(r"\s*\S+\s*|\s+")
_RESULT = re.compile(r"\{\{op:([^{}]+)\}\}")
# The key under which a reply says which turn it was.
_TURN = "scriptTurn"


class ScriptedModel:
    """The model that plays `turns`; `source` is what it is called in errors and records.

    Usage is reported in words, of the request and of the reply: a budget of tokens can be tried out with it.
    """

    def __init__(self, turns: tuple[ScriptedTurn, ...], source: str) -> None:
        self._turns = turns
        self._source = source

    @property
    def name(self) -> str:
        """`scripted:` and the file's name; where the file lies is this machine's business."""
        return f"scripted:{os.path.basename(self._source)}"

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The reply of the next turn that fits. Raises ModelFailed if there is none."""
        import anyio

        turn = self._next(request)
        text = self._filled(turn, turn.text, request.results)
        for number, word in enumerate(_WORD.findall(text)):
            # Also without a delay: a long reply must not keep a steer or a stop from being seen.
            await anyio.sleep(turn.delay if number else 0)
            await on_text(word)
        question = self._filled(turn, turn.ask, request.results) if turn.ask else None
        return ModelReply(
            text=text,
            calls=tuple(_call(turn, number, call) for number, call in enumerate(turn.calls, start=1)),
            question=question,
            usage={"inputTokens": _words_in(request), "outputTokens": _words(text) + _words(question or "")},
            extra={_TURN: turn.number},
        )

    def _next(self, request: ModelRequest) -> ScriptedTurn:
        used = {reply.extra.get(_TURN) for reply in request.replies}
        for turn in self._turns:
            if turn.number not in used and (turn.if_contains or "") in request.last_input:
                return turn
        raise ModelFailed(f"{self._source}: no turn is left that fits the input {request.last_input[:200]!r}")

    def _filled(self, turn: ScriptedTurn, text: str, results: dict[str, str]) -> str:
        def result(match: re.Match[str]) -> str:
            if match[1] not in results:
                raise ModelFailed(f"{self._source}: turn {turn.number} cites {match[0]}, which has no result yet")
            # As a shell does with `$(...)`: a result is cited in the middle of a sentence, too.
            return results[match[1]].rstrip("\n")

        return _RESULT.sub(result, text)


def _call(turn: ScriptedTurn, number: int, call: Doc) -> ToolCall:
    return ToolCall(f"call-{turn.number}-{number}", call["name"], call["arguments"])


def _words_in(request: ModelRequest) -> int:
    return _words(request.system) + sum(_words(message.text) for message in request.messages)


def _words(text: str) -> int:
    return len(text.split())
