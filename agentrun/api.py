"""Sessions and runs from Python: what the commands do, as methods.

    import agentrun

    tree = agentrun.open_tree()
    session = tree.new("last night's figures")
    run = session.start("analyse why revenue dropped")
    for news in run.follow():
        ...
    print(run.report())

Everything here may be used beside the command line and beside other processes, on the same sessions; each call
reads what is on disk then. Errors are those of `agentrun.errors`. All calls block; they may be made from any
thread, but for `execute`, which drives a run in this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentrun.adapters.agents.prompt import prompt_text
from agentrun.adapters.agents.turns import AgentFailed, Exchange, Said, Turns
from agentrun.adapters.models.settings import Key, ModelSettings
from agentrun.adapters.plugins import AgentSettings, ToolSettings
from agentrun.agent.events import RequestFinished, ToolFinished
from agentrun.agent.protocols import (
    Agent,
    ChatMessage,
    Invocation,
    Model,
    ModelFailed,
    ModelReply,
    ModelRequest,
    Question,
    Stretch,
    Tool,
    ToolCall,
    ToolOutcome,
    ToolSpec,
)
from agentrun.commands import control, listing, making, show, stops
from agentrun.commands.control import IfBusy
from agentrun.commands.execution import execute_own, make_order
from agentrun.commands.names import Target, find
from agentrun.commands.place import Place, find_place
from agentrun.commands.waiting import Vigil
from agentrun.errors import AgentrunError, ConfigError, Conflict, NotFound, TimeRanOut, UsageError
from agentrun.records.event import Event
from agentrun.records.message import ANSWER, FOLLOW_UP, PROMPT, STEER, Message
from agentrun.records.session import Session
from agentrun.records.views import RunView
from agentrun.states import OperationStatus, RunStatus
from agentrun.store.inbox import Order
from agentrun.store.sessions import SessionDir

__all__ = [
    "Agent",
    "AgentFailed",
    "AgentSettings",
    "AgentrunError",
    "ChatMessage",
    "ConfigError",
    "Conflict",
    "Event",
    "Exchange",
    "Invocation",
    "Key",
    "Message",
    "Model",
    "ModelFailed",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NotFound",
    "OpenRun",
    "OpenSession",
    "OpenTree",
    "OperationStatus",
    "Question",
    "RequestFinished",
    "RunStatus",
    "RunView",
    "Said",
    "Session",
    "Stretch",
    "TimeRanOut",
    "Tool",
    "ToolCall",
    "ToolFinished",
    "ToolOutcome",
    "ToolSettings",
    "ToolSpec",
    "Turns",
    "UsageError",
    "open_tree",
    "prompt_text",
]


def open_tree(root: str | None = None, *, account: str | None = None, config: str | None = None) -> OpenTree:
    """The tree in the directory `root`, by default the one that the command line uses. Nothing is made yet.

    `config` is a configuration file, by default the command line's. Raises Denied for an account that is no id.
    """
    return OpenTree(find_place(dict(os.environ), root=root, account=account, config=config))


class OpenTree(NamedTuple):
    """A tree of sessions."""

    place: Place

    @property
    def root(self) -> str:
        """Its directory."""
        return self.place.tree.root

    def new(self, title: str = "", *, session_id: str | None = None, agent: str | None = None) -> OpenSession:
        """Makes a session. Raises NameTaken, Denied, StorageFailed, and ConfigError for an agent that there is not."""
        if agent is not None:
            make_order(self.place, agent, None)
        made = making.new(
            self.place.tree, title=title, session_id=session_id, agent=agent, working_directory=os.getcwd()
        )
        return OpenSession(self.place, self.place.tree.session(made.session_id))

    def session(self, name: str) -> OpenSession:
        """The session that `name` names, as on the command line. Raises NotFound, Ambiguous, Denied."""
        return OpenSession(self.place, find(self.place.tree, name).session)

    def sessions(self) -> Iterator[Session]:
        """All sessions but the archived ones, the one that changed last first."""
        return (row.session for row in listing.rows(self.place.tree))


class OpenSession(NamedTuple):
    """A session."""

    place: Place
    directory: SessionDir

    @property
    def session_id(self) -> str:
        """Its id."""
        return self.directory.session_id

    def read(self) -> Session:
        """Title, agent and so on, as they are now."""
        return self.directory.read()

    def messages(self) -> list[Message]:
        """The whole conversation, in order."""
        return list(show.messages(self.directory, None, None))

    def run(self, run: str | None = None) -> OpenRun:
        """The run `run`, else the active one, else the newest. Raises NotFound."""
        name = self.session_id if run is None else f"{self.session_id}/{run}"
        return OpenRun(self.place, find(self.place.tree, name)._replace(session=self.directory))

    def start(
        self,
        text: str,
        *,
        agent: str | None = None,
        timeout: float | None = None,
        key: str | None = None,
        if_busy: IfBusy | None = None,
    ) -> OpenRun:
        """Begins a run with the prompt `text`, and returns once it is accepted: it goes on without this process.

        `timeout` is in seconds of executing; `key` makes saying it again harmless. Raises Conflict if the slot is
        taken, unless `if_busy` says otherwise, and ConfigError.
        """
        name = agent or self.directory.read().agent
        return self._accepted(text, lambda: make_order(self.place, name, timeout), key, if_busy)

    def execute(self, text: str, agent: Agent, *, timeout: float | None = None, key: str | None = None) -> OpenRun:
        """Begins a run and drives it here, with an agent of the caller's, until it ends or waits for the user.

        It is an ordinary run in all else: others may watch, steer and cancel it. But only this process knows its
        agent, so a run that it leaves unfinished can be stopped by others and not continued; an agent that is a
        plug-in can. Ctrl-C and SIGTERM stop the run. Raises UsageError outside the main thread.
        """
        import threading

        if threading.current_thread() is not threading.main_thread():
            raise UsageError("execute needs the main thread, where signals arrive; start() works in any")
        name = f"python:{type(agent).__module__}.{type(agent).__qualname__}"
        saying = _saying(text, PROMPT, key)._replace(order=lambda: Order(agent=name, timeout=timeout, config=None))
        acceptance = control.say(self.place, Target(self.directory, None), saying)
        target = Target(self.directory, acceptance.accepted.run_id)
        if acceptance.liveness is not None:
            execute_own(self.place, target, acceptance.liveness, agent)
        return OpenRun(self.place, target)

    def _accepted(self, text: str, order: Callable[[], Order], key: str | None, if_busy: IfBusy | None) -> OpenRun:
        saying = _saying(text, PROMPT, key)._replace(order=order, if_busy=if_busy)
        acceptance = control.say(self.place, Target(self.directory, None), saying)
        control.drive_on(self.place, acceptance)
        return OpenRun(self.place, Target(self.directory, acceptance.accepted.run_id))


class OpenRun(NamedTuple):
    """A run."""

    place: Place
    target: Target

    @property
    def name(self) -> str:
        """`SESSION/RUN`."""
        return self.target.run().name

    def view(self) -> RunView:
        """How it stands now."""
        return show.told(self.target.run())

    def report(self) -> str | None:
        """The report, or None as long as it has not completed."""
        return self.target.run().report()

    def draft(self) -> str:
        """What has been generated of a reply so far: never a delivery."""
        return self.target.run().draft()

    def follow(self, since: int = 0) -> Iterator[Event | Message]:
        """Its events and messages, each once and in order, as they come: until it ends, waits or has lost its executor.

        Only events after number `since`. Leaving the loop early stops nothing.
        """
        follower = show.Follower(self.target, since)
        try:
            while True:
                yield from follower.step()
                if follower.is_over:
                    return
                follower.wait(None)
        finally:
            follower.close()

    def wait(self, timeout: float | None = None) -> RunView:
        """Returns how it stands once it has ended, waits for the user or has lost its executor.

        Raises TimeRanOut after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        vigil = Vigil([self.target.run()])
        try:
            while not (stood := vigil.look()):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeRanOut(f"{self.name} was not over after {timeout:g} s")
                vigil.wait(left)
            return stood[0]
        finally:
            vigil.close()

    def steer(self, text: str, *, key: str | None = None) -> int:
        """Changes its direction: delivered before its next model request. Returns the message's number.

        Raises RunEnded if it comes too late.
        """
        return self._say(text, STEER, key)

    def follow_up(self, text: str, *, key: str | None = None) -> int:
        """Adds something: delivered when the model has nothing more to call. Returns the message's number."""
        return self._say(text, FOLLOW_UP, key)

    def answer(self, text: str, *, key: str | None = None) -> int:
        """Answers its question; it goes on, without this process if nobody drives it. Returns the message's number."""
        return self._say(text, ANSWER, key)

    def settle(self, *, approved: bool, note: str | None = None) -> None:
        """Allows or refuses the call that it waits with."""
        control.drive_on(self.place, control.settle(self.place, self.target, None, approved, note))

    def cancel(self, reason: str = "cancelled by the user") -> RunView:
        """Asks it to stop, and returns how it stands then; `wait` returns when nothing of it is alive any more.

        Raises RunEnded if it had ended.
        """
        return stops.cancel(self.place, self.target, reason)

    def _say(self, text: str, mode: str, key: str | None) -> int:
        acceptance = control.say(self.place, self.target, _saying(text, mode, key))
        control.drive_on(self.place, acceptance)
        return acceptance.accepted.message_seq


def _saying(text: str, mode: str, key: str | None) -> control.Saying:
    def no_order() -> Order:
        raise UsageError(f"a {mode} begins no run")

    return control.Saying(control.said(text, key), no_order, mode=mode)
