"""The program that is the agent: started, greeted, and asked for a conversation that it may know already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol

import anyio

from agentrun.adapters.acp.transport import PeerTransport
from agentrun.adapters.agents.held import Unusable
from agentrun.adapters.process import CannotStart, Peer, open_peer
from agentrun.adapters.tools.telling import how_it_ended, with_stderr
from agentrun.config import Patience
from agentrun.records.codec import Doc
from agentrun.records.session import conversation_name

PROTOCOL_VERSION = 1
# Seconds until an agent has greeted us and opened a conversation.
STARTING_SECONDS = 120.0
# Seconds for an agent to end its turn after it was told to stop; the protocol wants it to do so by itself.
STOPPING_SECONDS = 3.0
# Seconds for a program whose output is over to end.
ENDING_SECONDS = 1.0
METHOD_NOT_FOUND = -32601
# An extension of the protocol; an agent that has it says so under its name in `_meta` of its capabilities.
STEERING = "_session/steering"


class Listener(Protocol):
    """Who takes up what the program says."""

    async def hear(self, method: str, params: Any, is_notification: bool) -> Any:
        """A message of the program."""

    async def make_room(self) -> None:
        """Returns when the next message may be read."""


class Start(NamedTuple):
    """How the program is started; see `open_peer`."""

    argv: list[str]
    cwd: str
    env: Mapping[str, str]
    marker: Mapping[str, str]
    patience: Patience


class Refused(Exception):
    """The agent answered with an error."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.code = getattr(error, "code", 0)
        data = getattr(error, "data", None)
        details = f" ({data})" if data else ""
        self.reason = f"{error}{details}"


def _peer_of(start: Start) -> AbstractAsyncContextManager[Peer]:
    return open_peer(
        start.argv,
        cwd=start.cwd,
        env=start.env,
        marker=start.marker,
        grace=start.patience.grace,
        kill=start.patience.kill_timeout,
    )


@asynccontextmanager
async def running(start: Start, known: str | None, listener: Listener) -> AsyncIterator[Program]:
    """The program, in the conversation `known` if it still knows that. Raises Unusable, perhaps in a group."""
    from acp import RequestError
    from acp.connection import Connection

    try:
        async with _peer_of(start) as peer:
            connection = Connection(listener.hear, PeerTransport(peer, listener.make_room))
            program = Program(connection, peer, RequestError)
            try:
                with anyio.fail_after(STARTING_SECONDS):
                    await program.begin(start.cwd, known)
                yield program
            except TimeoutError as error:
                raise Unusable(await program.why(f"it did not answer within {STARTING_SECONDS:g} s")) from error
            except (Refused, ConnectionError) as error:
                said = error.reason if isinstance(error, Refused) else str(error)
                raise Unusable(await program.why(said)) from error
            finally:
                with anyio.CancelScope(shield=True):
                    await connection.close()
    except CannotStart as error:
        raise Unusable(str(error)) from error


class Program:
    """A connection to the agent. `remembers` says that it knows what came before in this conversation."""

    def __init__(self, connection: Any, peer: Peer, error: type[Exception]) -> None:
        self.session_id = ""
        self.remembers = False
        self.can_steer = False
        self._connection = connection
        self._peer = peer
        self._error = error

    async def begin(self, cwd: str, known: str | None) -> None:
        """Greets the agent and opens a conversation. Raises Refused, ConnectionError."""
        from agentrun import __version__

        hello = await self.ask(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                    "elicitation": {"form": {}},
                },
                "clientInfo": {"name": "agentrun", "title": "agentrun", "version": __version__},
            },
        )
        if hello.get("protocolVersion") != PROTOCOL_VERSION:
            raise ConnectionError(f"it speaks version {hello.get('protocolVersion')} of the protocol, and not 1")
        capabilities = _object(hello, "agentCapabilities")
        self.can_steer = bool(_object(capabilities, "_meta").get(STEERING))
        where: Doc = {"cwd": cwd, "mcpServers": []}
        if known and await self._reopen(capabilities, where | {"sessionId": known}):
            self.session_id, self.remembers = known, True
            return
        opened = await self.ask("session/new", where)
        name = conversation_name(opened.get("sessionId"))
        if name is None:
            raise ConnectionError("it opened a conversation and gave it no name that could be kept")
        self.session_id = name

    async def _reopen(self, capabilities: Doc, where: Doc) -> bool:
        method = None
        if "resume" in _object(capabilities, "sessionCapabilities"):
            method = "session/resume"
        elif capabilities.get("loadSession") is True:
            method = "session/load"
        if method is None:
            return False
        try:
            await self.ask(method, where)
        except Refused:
            return False  # it has forgotten it: a new conversation is told what was said
        return True

    async def ask(self, method: str, params: Doc) -> Doc:
        """The answer to a request. Raises Refused, ConnectionError."""
        try:
            answer = await self._connection.send_request(method, params)
        except self._error as error:
            raise Refused(error) from error
        return answer if isinstance(answer, dict) else {}

    async def prompt(self, text: str, meta: Doc) -> Doc:
        """One turn. If it is stopped, the agent is told, and has a moment to say what became of its calls."""
        params = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}], "_meta": meta}
        turn = asyncio.ensure_future(self.ask("session/prompt", params))
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                with suppress(ConnectionError):
                    await self._connection.send_notification("session/cancel", {"sessionId": self.session_id})
                await asyncio.wait({turn}, timeout=STOPPING_SECONDS)
            raise
        finally:
            turn.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({turn})
            if not turn.cancelled():
                turn.exception()  # it was told, or is of no interest any more

    async def steer(self, text: str) -> bool:
        """Puts something that the user said into the turn under way; False if the agent wants it as a prompt."""
        params = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        try:
            answer = await self.ask(STEERING, params)
        except Refused:
            return False
        return answer.get("outcome") in ("injected", "startedNewTurn")

    async def why(self, said: str) -> str:
        """`said`, or what is known of the end of the program if it has ended."""
        with anyio.move_on_after(ENDING_SECONDS):
            await self._peer.exited.wait()
        outcome = self._peer.outcome()
        ended = outcome.exit_code is not None or outcome.signal is not None
        return with_stderr(f"it has ended ({how_it_ended(outcome)})" if ended else said, outcome)


def _object(doc: Doc, name: str) -> Doc:
    """The object `name` of an answer; what is none says nothing."""
    value = doc.get(name)
    return value if isinstance(value, dict) else {}
