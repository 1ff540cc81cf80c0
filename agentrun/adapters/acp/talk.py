"""What an agent says during a turn, as our events: text is the draft, its calls are operations, its requests questions.

Everything is taken up in the order in which it came, by one task. A request of the agent to the user divides the turn:
what was said so far ends one model request, and another one begins with the answer. So a run that waits on disk has
nothing under way, and its next stretch goes on from the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from math import inf
from typing import Any, NamedTuple

import anyio

from agentrun.adapters.acp.calls import call_of, is_over, outcome_of
from agentrun.adapters.acp.program import METHOD_NOT_FOUND, Program, Refused
from agentrun.adapters.agents.activity import Call
from agentrun.adapters.agents.prompt import prompt_text
from agentrun.adapters.agents.turns import AgentFailed, Exchange, Said
from agentrun.agent.batch import the_one
from agentrun.agent.protocols import Question
from agentrun.agent.registering import idempotency_key
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Ask
from agentrun.records.codec import Doc
from agentrun.records.jsontext import value_of
from agentrun.records.operation import DENIED

# Seconds that a request for a permission waits for the agent's other calls to end.
SIBLING_SECONDS = 10.0
# Seconds between two looks for a steer, where the agent can take one in the middle of its turn.
STEER_SECONDS = 0.3
# Messages of the agent that wait to be taken up, and seconds until the next one is read although there are more: the
# one that is being taken up may need the answer behind them.
MOST_WAITING = 1000
ROOM_SECONDS = 1.0
_STEER = object()
CANCELLED: Doc = {"outcome": {"outcome": "cancelled"}}


class _Asked(NamedTuple):
    """A request of the agent, and where its answer goes."""

    method: str
    params: Doc
    answer: asyncio.Future[Doc]


class Talk:
    """The turns with one agent. `hear` takes what the program sends."""

    def __init__(self) -> None:
        self.program: Program | None = None
        self._exchange: Exchange | None = None
        self._send: Any = None
        self._taken = anyio.Event()
        self._calls: dict[str, Doc] = {}
        self._asked: deque[_Asked] = deque()
        self._has_gap = False
        self._is_steering = False
        self._unheard: list[str] = []

    async def hear(self, method: str, params: Any, is_notification: bool) -> Any:
        """A message of the program. Raises the library's error for what we do not offer."""
        params = params if isinstance(params, dict) else {}
        if method == "session/update":
            # Between turns there is no news: an agent that loads a conversation says all of it again.
            if self._send and isinstance(params.get("update"), dict):
                self._send.send_nowait(params["update"])
            return None
        if method not in ("session/request_permission", "elicitation/create"):
            if is_notification:
                return None
            from acp import RequestError

            raise RequestError(METHOD_NOT_FOUND, f"{method} is not offered")
        if not self._send:
            return _no_answer(method)
        asked = _Asked(method, params, asyncio.get_running_loop().create_future())
        self._send.send_nowait(asked)
        return await asked.answer

    async def make_room(self) -> None:
        """Waits until what the agent has said is taken up, but for a bounded rest: it may talk faster than that."""
        with anyio.move_on_after(ROOM_SECONDS):
            while self._send and self._send.statistics().current_buffer_used > MOST_WAITING:
                self._taken = anyio.Event()
                await self._taken.wait()

    async def turn(self, exchange: Exchange) -> Said:
        """One turn. Raises AgentFailed."""
        assert self.program
        self._exchange, self._calls, self._has_gap = exchange, {}, False
        text = prompt_text(exchange.stretch, exchange.transcript, remembers=self.program.remembers)
        key = idempotency_key(exchange.stretch, exchange.transcript, exchange.operation_id)
        self._send, receive = anyio.create_memory_object_stream[Any](inf)
        try:
            with self._send, receive:
                answer = await self._prompted(text, {"agentrun/idempotencyKey": key}, receive)
        except Refused as error:
            raise AgentFailed(error.reason) from error
        except ConnectionError as error:
            raise AgentFailed(await self.program.why(str(error))) from error
        finally:
            self._send = None
        self.program.remembers = True
        said = exchange.text or exchange.said_before
        return Said(said, stop_reason=str(answer.get("stopReason") or "end_turn"), usage=_usage(answer.get("usage")))

    async def _prompted(self, text: str, meta: Doc, receive: Any) -> Doc:
        assert self.program
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._take_up, receive)
                answer = await self._answered(text, meta)
                self._send.close()
                self._send = None
            return answer
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._take_up_ends(receive)
            raise

    async def _answered(self, text: str, meta: Doc) -> Doc:
        """The end of the turn, and of those that what could not be put into it needs."""
        assert self.program
        while True:
            async with anyio.create_task_group() as group:
                if self.program.can_steer:
                    group.start_soon(self._look_for_steers)
                answer = await self.program.prompt(text, meta)
                group.cancel_scope.cancel()
            if not self._unheard:
                return answer
            text, self._unheard = "\n\n".join(self._unheard), []

    async def _look_for_steers(self) -> None:
        assert self._exchange
        while True:
            await anyio.sleep(STEER_SECONDS)
            if self._exchange.stretch.is_steered() and not self._is_steering:
                self._is_steering = True
                self._send.send_nowait(_STEER)

    async def _steer(self) -> None:
        """Hands what the user has said to the agent, in the middle of its turn."""
        assert self._exchange
        assert self.program
        await self._exchange.divide()
        self._is_steering = False
        text = self._exchange.last_inputs()
        if text and not await self.program.steer(text):
            self._unheard.append(text)

    async def _take_up(self, receive: Any) -> None:
        try:
            await self._take_all(receive)
        finally:
            for asked in self._asked:
                _answer(asked, _no_answer(asked.method))
            self._asked.clear()

    async def _take_all(self, receive: Any) -> None:
        while True:
            if self._asked and not self._is_busy():
                await self._settle(self._asked.popleft())
                continue
            with anyio.move_on_after(SIBLING_SECONDS if self._asked else None) as limit:
                try:
                    item = await receive.receive()
                    self._taken.set()
                    await self._take(item)
                except anyio.EndOfStream:
                    break
            if limit.cancelled_caught and self._asked:
                await self._settle(self._asked.popleft())
        while self._asked:
            await self._settle(self._asked.popleft())

    def _is_busy(self) -> bool:
        assert self._exchange
        asked = {_call_id(each.params) for each in self._asked}
        return bool(self._exchange.activity.under_way - asked)

    async def _take(self, item: Any) -> None:
        assert self._exchange
        if isinstance(item, _Asked):
            self._asked.append(item)
            return
        if item is _STEER:
            await self._steer()
            return
        match item.get("sessionUpdate"):
            case "agent_message_chunk":
                await self._say(_object(item, "content"))
            case "tool_call" | "tool_call_update":
                await self._take_call(item)
            case _:
                pass

    async def _say(self, content: Doc) -> None:
        assert self._exchange
        text = content.get("text")
        if not isinstance(text, str) or not text:
            return
        gap = "\n\n" if self._has_gap and self._exchange.text else ""
        self._has_gap = False
        await self._exchange.say(gap + text)

    async def _take_call(self, update: Doc) -> None:
        assert self._exchange
        self._has_gap = True
        call, merged = self._merged(update)
        activity = self._exchange.activity
        if is_over(merged):
            if not merged.get("isTold"):
                merged["isTold"] = True
                await activity.finished(call, *outcome_of(merged))
        elif merged.get("status") == "in_progress":
            await activity.started(call)
        elif call.arguments:
            await activity.registered(call)

    def _merged(self, update: Doc) -> tuple[Call, Doc]:
        """The call with all that is known of it: an update has only what is new."""
        call_id = str(update.get("toolCallId"))
        merged = self._calls.setdefault(call_id, {})
        merged.update({key: value for key, value in update.items() if value is not None})
        return call_of(call_id, merged), merged

    async def _take_up_ends(self, receive: Any) -> None:
        """After a stop: how the calls ended that were under way, as far as the agent still said it."""
        assert self._exchange
        while True:
            try:
                item = receive.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream):
                return
            if isinstance(item, dict) and item.get("sessionUpdate") == "tool_call_update":
                call, merged = self._merged(item)
                if is_over(merged) and call.call_id in self._exchange.activity.under_way:
                    await self._exchange.activity.finished(call, *outcome_of(merged))

    # What the agent asks the user.

    async def _settle(self, asked: _Asked) -> None:
        settle = self._permission if asked.method == "session/request_permission" else self._elicitation
        try:
            _answer(asked, await settle(asked.params))
        finally:
            # Stopped while the user was asked: the protocol wants every open request answered.
            _answer(asked, _no_answer(asked.method))

    async def _permission(self, params: Doc) -> Doc:
        assert self._exchange
        call, _ = self._merged(_object(params, "toolCall"))
        operation_id = await self._exchange.activity.wanted(call)
        if _was_allowed(self._exchange.transcript, call):
            return _choice(params, allowed=True)
        arguments = json.dumps(call.arguments, ensure_ascii=False)[:2000] if call.arguments else ""
        text = f"May {call.name} be called ({call.effect})?" + (f" Its arguments: {arguments}" if arguments else "")
        ask = await self._exchange.put(Question("approval", text, operation_id))
        if not ask.approved:
            note = f": {ask.note}" if ask.note else ""
            await self._exchange.activity.refused(call.call_id, f"{DENIED}{note}")
        return _choice(params, allowed=bool(ask.approved))

    async def _elicitation(self, params: Doc) -> Doc:
        assert self._exchange
        schema = params.get("requestedSchema") or {}
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if params.get("mode", "form") != "form" or not isinstance(properties, dict) or not properties:
            return {"action": "decline"}
        await self._exchange.put(Question("question", _asked_text(str(params.get("message")), properties)))
        return {"action": "accept", "content": _content(self._exchange.last_input(), properties)}


def _answer(asked: _Asked, answer: Doc) -> None:
    if not asked.answer.done():
        asked.answer.set_result(answer)


def _no_answer(method: str) -> Doc:
    return CANCELLED if method == "session/request_permission" else {"action": "cancel"}


def _call_id(params: Doc) -> str:
    return str(_object(params, "toolCall").get("toolCallId"))


def _object(doc: Doc, name: str) -> Doc:
    """The object `name` of a message; what is none says nothing."""
    value = doc.get(name)
    return value if isinstance(value, dict) else {}


def _was_allowed(transcript: Transcript, call: Call) -> bool:
    """Whether the user allowed this very call before its agent was stopped, and it was not made since."""
    same = [
        each
        for turn in transcript.turns
        for each in turn.calls
        if each.name == call.name and (each.arguments or {}) == call.arguments
    ]
    allowed = sum(_approval(transcript, each.operation_id) for each in same)
    return allowed > sum(each.attempt > 0 for each in same)


def _approval(transcript: Transcript, operation_id: str) -> bool:
    asks: list[Ask | None] = [turn.approval_of(operation_id) for turn in transcript.turns]
    return any(ask is not None and ask.approved for ask in asks)


def _choice(params: Doc, *, allowed: bool) -> Doc:
    """The option that says so once; the user is asked each time."""
    kinds = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
    offered = params.get("options")
    options = [each for each in offered if isinstance(each, dict)] if isinstance(offered, list) else []
    for kind in kinds:
        for option in options:
            if option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return CANCELLED


def _asked_text(message: str, properties: Doc) -> str:
    if len(properties) == 1:
        (field,) = properties.values()
        choices = field.get("enum") if isinstance(field, dict) else None
        return message + (f" ({', '.join(map(str, choices))})" if isinstance(choices, list) and choices else "")
    return f"{message}\nAnswer with a JSON object with: {', '.join(properties)}"


def _content(answer: str, properties: Doc) -> Doc:
    """The fields of a form from the user's words: a JSON object, or the words for the first field."""
    try:
        value = value_of(answer)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.keys() <= properties.keys():
        return value
    name, field = next(iter(properties.items()))
    kind = field.get("type") if isinstance(field, dict) else None
    if kind in ("number", "integer", "boolean") and isinstance(value, bool | int | float):
        return {name: value}
    return {name: answer}


def _usage(usage: Any) -> Doc | None:
    if not isinstance(usage, dict):
        return None
    return {name: usage[name] for name in ("inputTokens", "outputTokens") if type(usage.get(name)) is int} or None
