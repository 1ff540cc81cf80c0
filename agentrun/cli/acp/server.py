"""The methods of the protocol, each mapped to a command.

A prompt is a run that is executed detached, and followed here. So an editor that goes away, or closes a session, stops
looking and stops nothing; `session/cancel` is what cancels.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from agentrun import __version__
from agentrun.cli.acp.news import News, replayed
from agentrun.cli.acp.prompts import asks_for, form_answer, text_of
from agentrun.commands import control, listing, making, stops
from agentrun.commands.execution import make_order
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.show import Follower, messages
from agentrun.errors import AgentrunError, Conflict, NotFound, RunEnded, UsageError
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import STEER
from agentrun.records.operation import TOOL, fold_operations
from agentrun.records.views import Accepted, RunView
from agentrun.states import RunStatus

# Seconds between two looks at a run where nothing tells of a change.
LOOK_SECONDS = 0.5
LISTED = 100
INVALID_PARAMS, INTERNAL_ERROR, METHOD_NOT_FOUND, NOT_FOUND = -32602, -32603, -32601, -32002

Send = Callable[[str, Doc], Awaitable[Any]]


class Refusal(Exception):
    """What the editor is told instead of an answer."""

    def __init__(self, code: int, message: str, data: Doc | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Server:
    """One editor. `notify` and `ask` send to it; `agent` is for sessions that it makes."""

    def __init__(self, place: Place, agent: str | None, notify: Send, ask: Send) -> None:
        self._place = place
        self._agent = agent
        self._notify = notify
        self._ask = ask
        self._has_forms = False
        self._closed: dict[str, threading.Event] = {}
        self._methods: dict[str, Callable[[Doc], Awaitable[Doc | None]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/list": self._list,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/close": self._close,
            "_session/steering": self._steer,
        }

    async def serve(self, method: str, params: Doc) -> Doc | None:
        """The answer to a request or notification. Raises Refusal."""
        answer = self._methods.get(method)
        if answer is None:
            raise Refusal(METHOD_NOT_FOUND, f"agentrun does not offer {method}")
        try:
            return await answer(params)
        except NotFound as error:
            raise Refusal(NOT_FOUND, error.message, {"code": error.code}) from error
        except AgentrunError as error:
            code = INVALID_PARAMS if isinstance(error, UsageError) else INTERNAL_ERROR
            raise Refusal(code, error.message, {"code": error.code, "hint": error.hint}) from error

    def leave(self) -> None:
        """The editor is gone: nobody looks any more."""
        for each in self._closed.values():
            each.set()

    # Sessions.

    async def _initialize(self, params: Doc) -> Doc:
        self._has_forms = "form" in ((params.get("clientCapabilities") or {}).get("elicitation") or {})
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "sessionCapabilities": {"list": {}, "close": {}},
                "_meta": {"_session/steering": True},
            },
            "agentInfo": {"name": "agentrun", "title": "agentrun", "version": __version__},
            "authMethods": [],
        }

    async def _new(self, params: Doc) -> Doc:
        make_order(self._place, self._agent, None)  # says now, and not at the first prompt, what is missing
        session = making.new(
            self._place.tree,
            title="",
            session_id=None,
            agent=self._agent,
            working_directory=str(params.get("cwd") or "") or None,
        )
        return {"sessionId": session.session_id}

    async def _load(self, params: Doc) -> Doc:
        target = self._target(params)
        calls = {}
        for run_id in target.session.newest_run_ids(LISTED):
            run_dir = target.session.run(run_id)
            calls[run_id] = [each for each in fold_operations(run_dir.all_events()) if each.kind == TOOL]
        for message in messages(target.session, None, None):
            before = calls.pop(message.run_id, []) if message.role == "assistant" else []
            for update in replayed(message, before):
                await self._tell(target, update)
        return {}

    async def _list(self, params: Doc) -> Doc:
        listed: list[Doc] = []
        for row in listing.rows(self._place.tree):
            one = row.session
            if params.get("cwd") not in (None, one.working_directory):
                continue
            known = {"sessionId": one.session_id, "cwd": one.working_directory or "/"}
            listed.append(known | {"title": one.title, "updatedAt": one.updated_at})
            if len(listed) == LISTED:
                break
        return {"sessions": listed}

    async def _close(self, params: Doc) -> Doc:
        closed = self._closed.pop(self._target(params).session.session_id, None)
        if closed:
            closed.set()
        return {}

    # Turns.

    async def _prompt(self, params: Doc) -> Doc:
        target = self._target(params)
        text = text_of(params.get("prompt"))
        news, closed = News(), self._closed.setdefault(target.session.session_id, threading.Event())
        run = await self._say(target, text, news)
        while True:
            view = await self._follow(run, news, closed)
            if view.status is not RunStatus.WAITING_INPUT:
                return _ended(view)
            if not await self._settle(run, view, news, closed):
                return {"stopReason": "end_turn"}

    async def _say(self, target: Target, text: str, news: News) -> Target:
        """Accepts what the user says; the run that it goes to, which is executed."""
        agent = target.session.read().agent or self._agent
        saying = control.Saying(
            said=control.said(text, None), order=lambda: make_order(self._place, agent, None), mode=None
        )

        def say() -> Accepted:
            acceptance = control.say(self._place, target, saying)
            control.drive_on(self._place, acceptance)
            return acceptance.accepted

        accepted = await asyncio.to_thread(say)
        news.own.add(accepted.message_seq)
        return Target(target.session, accepted.run_id)

    async def _follow(self, run: Target, news: News, closed: threading.Event) -> RunView:
        """Tells the editor what happens until the run stands. Raises Refusal if the session is closed meanwhile."""
        loop = asyncio.get_running_loop()

        def tell(update: Doc) -> None:
            asyncio.run_coroutine_threadsafe(self._tell(run, update), loop).result()

        view = await asyncio.to_thread(_follow, run, news, closed, tell)
        if view is None:
            raise Refusal(INTERNAL_ERROR, "the session was closed here; its run goes on")
        return view

    async def _settle(self, run: Target, view: RunView, news: News, closed: threading.Event) -> bool:
        """Has the user answer what the run waits for, here or elsewhere; False if the next prompt is the answer."""
        waiting = view.run.waiting_for or {}
        question = str(waiting.get("questionId"))
        if waiting.get("kind") != "approval" and not self._has_forms:
            return False
        method, params = asks_for(run.session.session_id, waiting)
        here = asyncio.ensure_future(self._ask(method, params))
        elsewhere = asyncio.ensure_future(asyncio.to_thread(_until_answered, run, question, closed))
        await asyncio.wait({here, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
        if not here.done():
            here.cancel()  # it was answered elsewhere, or the run was stopped
            return True
        return await self._answer(run, waiting, here.result() or {}, news)

    async def _answer(self, run: Target, waiting: Doc, answer: Doc, news: News) -> bool:
        try:
            if waiting.get("kind") == "approval":
                outcome = answer.get("outcome") or {}
                if outcome.get("outcome") != "selected":
                    return False
                allowed = outcome.get("optionId") == "allow"
                operation = waiting.get("operationId")

                def settle() -> None:
                    control.drive_on(self._place, control.settle(self._place, run, operation, allowed, None))

                await asyncio.to_thread(settle)
                return True
            text = form_answer(answer)
            if text is not None:
                await self._say(run, text, news)
            return text is not None
        except Conflict:
            return True  # somebody else was faster, or the run has ended

    async def _cancel(self, params: Doc) -> None:
        target = self._target(params)
        try:
            await asyncio.to_thread(stops.cancel, self._place, target, "cancelled in the editor")
        except RunEnded:
            return

    async def _steer(self, params: Doc) -> Doc:
        target = self._target(params)
        text = text_of(params.get("prompt"))
        saying = control.Saying(said=control.said(text, None), order=_no_order, mode=STEER)
        try:
            await asyncio.to_thread(control.say, self._place, target, saying)
        except RunEnded:
            return {"outcome": "promptRequired"}
        except AgentrunError as error:
            return {"outcome": "failed", "message": error.message}
        return {"outcome": "injected"}

    # Below.

    def _target(self, params: Doc) -> Target:
        name = params.get("sessionId")
        if not isinstance(name, str) or not name:
            raise Refusal(INVALID_PARAMS, "sessionId is missing")
        return Target(self._place.tree.session(name), None)

    async def _tell(self, target: Target, update: Doc) -> None:
        await self._notify("session/update", {"sessionId": target.session.session_id, "update": update})


def _no_order() -> Any:
    raise UsageError("a steer begins no run")


def _follow(run: Target, news: News, closed: threading.Event, tell: Callable[[Doc], None]) -> RunView | None:
    follower = Follower(run)
    try:
        while not closed.is_set():
            for each in follower.step():
                for update in news.of_event(each) if isinstance(each, Event) else news.of_message(each):
                    tell(update)
            draft = follower.new_draft()
            for update in news.of_draft(draft or ""):
                tell(update)
            if follower.is_over:
                return follower.view
            follower.wait(LOOK_SECONDS)
        return None
    finally:
        follower.close()


def _until_answered(run: Target, question: str, closed: threading.Event) -> None:
    """Returns when the run does not wait for this answer any more, or nobody looks."""
    follower = Follower(run)
    try:
        while not closed.is_set():
            follower.step()
            if (follower.view.run.waiting_for or {}).get("questionId") != question:
                return
            follower.wait(LOOK_SECONDS)
    finally:
        follower.close()


def _ended(view: RunView) -> Doc:
    """The end of a turn. Raises Refusal for a run that gave no report and was not cancelled."""
    if view.status is RunStatus.COMPLETED:
        usage = {name: view.run.usage.get(name) or 0 for name in ("inputTokens", "outputTokens")}
        return {"stopReason": "end_turn", "usage": usage | {"totalTokens": sum(usage.values())}}
    if view.status is RunStatus.CANCELLED:
        return {"stopReason": "cancelled"}
    why = f": {view.run.reason}" if view.run.reason else ""
    raise Refusal(INTERNAL_ERROR, f"{view.run.session_id}/{view.run.run_id} is {view.words}{why}")
