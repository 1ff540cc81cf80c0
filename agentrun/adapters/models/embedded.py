"""The embedded model: llama.cpp's server and a model file, on this machine, without a key or a network.

Each stretch has a server of its own, a child of the executor: started when the model is first asked, ended with the
stretch. It dies with the executor also if that is killed (see `embedded_server`), so none is ever left behind.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from agentrun.adapters.models.openai_compatible import OpenAICompatibleModel
from agentrun.adapters.models.settings import Key, ModelSettings
from agentrun.adapters.process import CannotStart, Outcome, run_process
from agentrun.agent.batch import the_one
from agentrun.agent.protocols import ModelFailed, ModelReply, ModelRequest

# A small model may repeat itself for ever; this is more than a report of its needs.
MAX_OUTPUT_TOKENS = 2048
# Seconds from the start of the server until the model is loaded. About one, on a machine that is not busy.
LOADING_SECONDS = 300.0
_SERVER = "agentrun.adapters.models.embedded_server"


class EmbeddedServer:
    """The server of the model file `path`; it can be had inside `opened` alone."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.key = secrets.token_urlsafe(24)
        self._path = path
        self._environment = environment
        self._address: str | None = None
        self._failure: str | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The server can be had inside this block, and is gone after it."""
        self._address = self._failure = None
        self._wanted, self._known = anyio.Event(), anyio.Event()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._serve)
                yield
                group.cancel_scope.cancel()
        except BaseExceptionGroup as raised:
            raise the_one(raised) from None

    async def address(self) -> str:
        """Where it listens; starts it at the first call. Raises ModelFailed if it cannot serve."""
        self._wanted.set()
        with anyio.move_on_after(LOADING_SECONDS):
            await self._known.wait()
        if self._address is None or self._failure:
            raise ModelFailed(self._failure or f"the embedded model was not loaded in {LOADING_SECONDS:g} s")
        return self._address

    async def _serve(self) -> None:
        await self._wanted.wait()
        marker = {"AGENTRUN_EMBEDDED_MODEL": f"{os.getpid()}-{self.key[:8]}"}
        try:
            outcome = await run_process(
                [sys.executable, "-P", "-m", _SERVER, self._path, str(os.getpid())],
                cwd=os.path.dirname(self._path),
                env={**self._environment, **marker},
                marker=marker,
                stdin=f"{self.key}\n".encode(),
                timeout=None,
                # It holds nothing that would be worth a farewell.
                grace=0.0,
                max_output=0,
                on_line=self._note,
            )
            outcome.stdout.close()
            self._failure = f"the server of the embedded model ended: {_last_words(outcome)}"
        except CannotStart as error:
            self._failure = str(error)
        self._known.set()

    async def _note(self, line: bytes) -> None:
        if line:
            self._address = line.decode()
            self._known.set()


def _last_words(outcome: Outcome) -> str:
    said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:500] if said else f"exit code {outcome.exit_code}, signal {outcome.signal}"


class EmbeddedModel:
    """The model that `server` serves."""

    def __init__(self, settings: ModelSettings, server: EmbeddedServer) -> None:
        self._settings = settings
        self._server = server

    @property
    def name(self) -> str:
        """`local`, with the name of its file where one was chosen."""
        return f"local:{os.path.basename(self._settings.name)}" if self._settings.name else "local"

    def opened(self) -> AbstractAsyncContextManager[None]:
        """The block in which it can be asked; see `agent.protocols.Opened`."""
        return self._server.opened()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The reply to `request`; see `agent.protocols.Model`."""
        address = await self._server.address()
        settings = self._settings
        settings = settings._replace(
            name="local",
            base_url=f"{address}/v1",
            key=Key(variable="key", environment={"key": self._server.key}),
            temperature=0.0 if settings.temperature is None else settings.temperature,
            max_output_tokens=settings.max_output_tokens or MAX_OUTPUT_TOKENS,
        )
        return await OpenAICompatibleModel(settings, label=self.name).complete(request, on_text)
