"""A server of tools: started or connected to, asked what it offers, and left."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from agentrun.adapters.agents.held import Unusable
from agentrun.adapters.mcp.answers import Answers
from agentrun.adapters.mcp.transport import LINE_BYTES, LISTING_BYTES, over
from agentrun.adapters.process import CannotStart, Peer, open_peer
from agentrun.adapters.process.output import Lines
from agentrun.adapters.surroundings import Surroundings
from agentrun.adapters.tools.telling import how_it_ended, with_stderr
from agentrun.config import McpConfig
from agentrun.config.secrets import hidden, is_secret_name, secrets_of

# Seconds until a server has said what it offers. One that is fetched from a package registry first takes its time.
STARTING_SECONDS = 120.0

# Tools that an agent may have of one server, and pages of its list that are asked for: one without end would fill the
# memory and use up the run's time. A model that is told of a thousand tools finds none of them.
MOST_TOOLS, MOST_PAGES = 1000, 1000

# Seconds for a program whose output is over to end.
ENDING_SECONDS = 1.0

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpServer:
    """The server that `config` describes. A program runs in `directory` unless the configuration names another.

    `secrets` are the variables that it must not inherit; those that its own settings name are given to it.
    """

    def __init__(
        self, config: McpConfig, surroundings: Surroundings, *, directory: str, secrets: Collection[str]
    ) -> None:
        self.config = config
        self._surroundings = surroundings
        self._directory = directory
        self._secrets = secrets

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """The server with its tools, for as long as the block is. Raises Unusable, perhaps in a group."""
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            try:
                with anyio.fail_after(STARTING_SECONDS):
                    await connection.begin()
            except TimeoutError as error:
                raise Unusable(await connection.why(f"it did not answer within {STARTING_SECONDS:g} s")) from error
            yield connection

    async def _connect(self, stack: AsyncExitStack) -> Connection:
        from mcp import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import Implementation

        from agentrun import __version__

        peer = None
        heard: Lines | Answers
        if self.config.url is None:
            try:
                peer = await stack.enter_async_context(self._open_peer())
            except CannotStart as error:
                raise Unusable(str(error)) from error
            read, write, heard = await stack.enter_async_context(over(peer))
        else:
            read, write, heard = await stack.enter_async_context(self._over_http())
        us = Implementation(name="agentrun", version=__version__)
        dispatcher: Any = JSONRPCDispatcher(read, write)
        session = await stack.enter_async_context(ClientSession(client_info=us, dispatcher=dispatcher))
        return Connection(self.config, session, dispatcher, peer, heard, self._secrets_given())

    def _open_peer(self) -> Any:
        config = self.config
        name = f"mcp:{config.name}"
        environment = self._surroundings.environment_for(name, "", self._secrets)
        del environment["AGENTRUN_IDEMPOTENCY_KEY"]  # each call has its own, which goes along with it
        return open_peer(
            [config.command or "", *map(self._filled, config.args)],
            cwd=os.path.join(self._directory, config.cwd or ""),
            env=environment | {key: self._filled(value) for key, value in config.env.items()},
            marker=self._surroundings.marker(name),
            grace=config.grace,
            kill=config.kill_timeout,
        )

    @asynccontextmanager
    async def _over_http(self) -> AsyncIterator[tuple[Any, Any, Answers]]:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        answers = Answers(LISTING_BYTES)
        headers = {key: self._filled(value) for key, value in self.config.headers.items()}
        async with create_mcp_http_client(headers=headers) as client:
            answers.bind(client)
            # (The library's own bound of an event is a mebibyte, and of other answers none.)
            transport = streamable_http_client(
                self._filled(self.config.url or ""), http_client=client, max_sse_event_size=LINE_BYTES
            )
            async with transport as (read, write):
                yield read, write, answers

    def without_secrets(self, text: str) -> str:
        """`text` without what the server was given and should keep to itself: it may repeat that in an error."""
        return hidden(text, self._secrets_given())

    def _secrets_given(self) -> tuple[str, ...]:
        config, environment = self.config, self._surroundings.environment
        sent = {
            name: value for name, value in config.headers.items() if is_secret_name(name) or _VARIABLE.search(value)
        }
        given = [value for name, value in config.env.items() if is_secret_name(name)] + list(sent.values())
        variables = {name for text in (*sent.values(), config.url or "") for name in _VARIABLE.findall(text)}
        named = {name for text in (*config.args, *config.env.values()) for name in _VARIABLE.findall(text)}
        variables |= set(filter(is_secret_name, named))

        def filled_in(text: str) -> str:
            return _VARIABLE.sub(lambda match: environment.get(match[1], ""), text)

        values = [filled_in(text) for text in given]
        # Of `Bearer KEY`, also the key alone.
        words = [value.split()[-1] for value in values if value.strip()]
        address = secrets_of(filled_in(config.url or ""))
        return (*values, *words, *(environment.get(name, "") for name in variables), *address)

    def _filled(self, text: str) -> str:
        """`text` with each `${NAME}` replaced by that variable. Raises Unusable if there is none."""
        return filled(text, self._surroundings.environment)


def filled(text: str, environment: Mapping[str, str]) -> str:
    """`text` with each `${NAME}` replaced by that variable of `environment`. Raises Unusable if there is none."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise Unusable(f"its settings need the variable {match[1]}, which is not set")
        return environment[match[1]]

    return _VARIABLE.sub(value, text)


class Connection:
    """A server that has been reached. `tools` are what it offers of what the configuration lets through, in its
    own words.

    `raw` is the layer below `session`, for what the library does not speak: calls that become tasks.
    """

    def __init__(
        self,
        config: McpConfig,
        session: Any,
        raw: Any,
        peer: Peer | None,
        heard: Lines | Answers,
        secrets: tuple[str, ...],
    ) -> None:
        self.config = config
        self._secrets = secrets
        self.session = session
        self.raw = raw
        self.tools: list[Any] = []
        self.has_tasks = False
        self._peer = peer
        self._heard = heard
        self._lost: str | None = None

    async def begin(self) -> None:
        """Shakes hands and asks for the tools. Raises Unusable."""
        from mcp import MCPError
        from pydantic import ValidationError

        try:
            hello = await self.session.initialize()
            tasks = hello.capabilities.tasks
            self.has_tasks = bool(tasks and tasks.requests and tasks.requests.tools and tasks.requests.tools.call)
            await self._list_tools()
        # RuntimeError: it speaks a version of the protocol that the library does not.
        except (MCPError, ValidationError, RuntimeError, OSError) as error:
            said = f"it said more than {LISTING_BYTES >> 20} MiB at once, before its tools were known"
            raise Unusable(await self.why(said if self._heard.dropped else str(error))) from error
        self._heard.limit = LINE_BYTES

    async def _list_tools(self) -> None:
        """Asks for one page of tools after the other, until there are all that are wanted."""
        from mcp_types import PaginatedRequestParams

        wanted, missing, cursor = self.config.tools, set(self.config.tools), None
        for _ in range(MOST_PAGES):
            page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            self.tools += [tool for tool in page.tools if not wanted or tool.name in wanted]
            missing -= {tool.name for tool in page.tools}
            if len(self.tools) > MOST_TOOLS:
                raise self._too_long(f"more than {MOST_TOOLS} tools")
            cursor = page.next_cursor
            if cursor is None or (wanted and not missing):
                return
        raise self._too_long(f"more than {MOST_PAGES} pages of tools")

    def _too_long(self, what: str) -> Unusable:
        name = self.config.name
        return Unusable(f'it offers {what}; name those that are needed: tools = ["..."] in [mcp.{name}]')

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be asked of the server any more."""
        return self._lost is not None or (self._peer is not None and self._peer.exited.is_set())

    def lost(self, why: str) -> None:
        """The connection broke off."""
        self._lost = self.without_secrets(why)

    def without_secrets(self, text: str) -> str:
        """As `McpServer.without_secrets`."""
        return hidden(text, self._secrets)

    async def why(self, said: str) -> str:
        """`said`, or what is known of the end of the program if it has ended."""
        if self._peer is None:
            return self._lost or self.without_secrets(said)
        # Its output can be over a moment before it is.
        with anyio.move_on_after(ENDING_SECONDS):
            await self._peer.exited.wait()
        outcome = self._peer.outcome()
        ended = outcome.exit_code is not None or outcome.signal is not None
        said = f"the server has ended ({how_it_ended(outcome)})" if ended else self.without_secrets(said)
        return with_stderr(said, outcome, self._secrets)
