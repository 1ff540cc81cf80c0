"""The tools of a server, as the loop has them: named, judged as reads or writes, and called."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio

from agentrun.adapters.mcp.results import outcome_of
from agentrun.adapters.mcp.server import Connection
from agentrun.agent.protocols import Invocation, ToolOutcome, ToolSpec
from agentrun.config import McpConfig
from agentrun.records.operation import READ, WRITE
from agentrun.states import OperationStatus as Status

# Under this name the key goes along in `_meta`; the part before the slash is ours, as the protocol wants it.
IDEMPOTENCY_KEY = "agentrun/idempotencyKey"
RELATED_TASK = "io.modelcontextprotocol/related-task"
# Seconds between two progress events of one call: a person reads them, and each is a line that stays.
PROGRESS_SECONDS = 1.0
# Seconds between two looks at a task whose server names no pace, and the longest that a server may name.
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.5, 30.0
# For telling a server that a task is not wanted any more.
CANCELLING_SECONDS = 2.0

OnProgress = Callable[[str, str], Awaitable[None]]


def exposed_name(server: str, tool: str) -> str:
    """The name that models are told: the APIs of the common ones take letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")


def tools_of(connection: Connection, on_progress: OnProgress) -> list[McpTool]:
    """The tools of the connection. `on_progress` gets an operation and how far it has come."""
    return [McpTool(connection, tool, on_progress) for tool in connection.tools]


class McpTool:
    """One tool of a server. Failures of tool and server are outcomes."""

    def __init__(self, connection: Connection, tool: Any, on_progress: OnProgress) -> None:
        self._connection = connection
        self._tool = tool
        self._on_progress = on_progress
        self._effect = _effect(connection.config, tool)

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it, and what the loop keeps to."""
        config = self._connection.config
        return ToolSpec(
            name=exposed_name(config.name, self._tool.name),
            description=self._tool.description or self._tool.title or "",
            parameters=dict(self._tool.input_schema),
            effect=self._effect,
            approve=config.approve or ("auto" if self._effect == READ else "ask"),
            timeout=config.timeout,
        )

    async def call(
        self,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_stopped: Callable[[ToolOutcome], None],
    ) -> ToolOutcome:
        """Calls the tool once. When it is stopped or takes too long, the server is told."""
        if self._connection.is_gone:
            return ToolOutcome(Status.FAILED, error=await self._connection.why("the server has ended"))
        call = _Call(self._connection, self._tool, invocation, on_remote_id, self._on_progress)
        try:
            with anyio.move_on_after(self._connection.config.timeout):
                return await self._outcome(call)
        except BaseException:
            on_stopped(ToolOutcome(Status.CANCELLED, may_have_effects=self._writes))
            raise
        return ToolOutcome(
            Status.TIMED_OUT,
            error=f"it did not end within {self._connection.config.timeout:g} s; the server was told",
            may_have_effects=self._writes,
            retryable=not self._writes,
        )

    async def _outcome(self, call: _Call) -> ToolOutcome:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND
        from pydantic import ValidationError

        try:
            return self._safe(outcome_of(await call.result()))
        except MCPError as error:
            reason = await self._connection.why(error.message) if error.code == CONNECTION_CLOSED else error.message
            refused = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            reason = self._connection.without_secrets(reason)
            return ToolOutcome(Status.FAILED, error=reason, may_have_effects=self._writes and not refused)
        except (ValidationError, OSError) as error:
            return ToolOutcome(
                Status.FAILED,
                error=self._connection.without_secrets(f"its answer is none: {error}"),
                may_have_effects=self._writes,
            )

    def _safe(self, outcome: ToolOutcome) -> ToolOutcome:
        """Without what the server was given, which an error may repeat. A result is the tool's to answer for."""
        if outcome.error is None or not isinstance(outcome.output, bytes):
            return outcome
        hide = self._connection.without_secrets
        output = hide(outcome.output.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        shown = None if outcome.shown is None else hide(outcome.shown)
        return outcome._replace(error=hide(outcome.error), output=output, shown=shown)

    @property
    def _writes(self) -> bool:
        return self._effect == WRITE


def _effect(config: McpConfig, tool: Any) -> Literal["read", "write"]:
    """What the configuration says of the tool, else of its server, else what the server says; else the cautious one."""
    if tool.name in config.write:
        return "write"
    if tool.name in config.read:
        return "read"
    if config.effect:
        return config.effect
    return "read" if tool.annotations and tool.annotations.read_only_hint else "write"


class _Call:
    """One call under way."""

    def __init__(
        self,
        connection: Connection,
        tool: Any,
        invocation: Invocation,
        on_remote_id: Callable[[str], Awaitable[None]],
        on_progress: OnProgress,
    ) -> None:
        self._session = connection.session
        self._raw = connection.raw
        self._tool = tool
        self._invocation = invocation
        self._on_remote_id = on_remote_id
        self._on_progress = on_progress
        self._told_at = float("-inf")
        support = tool.execution.task_support if tool.execution else None
        self._as_task = connection.has_tasks and support in ("optional", "required")

    async def result(self) -> Any:
        """The answer. Raises MCPError, ValidationError."""
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, CreateTaskResult, TaskMetadata

        meta: Any = {IDEMPOTENCY_KEY: self._invocation.idempotency_key}
        task = TaskMetadata() if self._as_task else None
        params = CallToolRequestParams(
            name=self._tool.name, arguments=self._invocation.arguments, task=task, _meta=meta
        )
        if self._as_task:
            sent = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            answer = await self._raw.send_raw_request("tools/call", sent, {"on_progress": self._heard})
            return await self._task_result(CreateTaskResult.model_validate(answer, by_name=False).task)
        request = CallToolRequest(params=params)
        result = await self._session.send_request(request, CallToolResult, progress_callback=self._heard)
        related = (result.meta or {}).get(RELATED_TASK)
        if isinstance(related, dict) and related.get("taskId"):
            await self._on_remote_id(str(related["taskId"]))
        return result

    async def _task_result(self, task: Any) -> Any:
        """Follows a task that the server has begun, and tells the server if nobody wants it any more."""
        from mcp_types import (
            CallToolResult,
            GetTaskPayloadRequest,
            GetTaskPayloadRequestParams,
            GetTaskRequest,
            GetTaskRequestParams,
            GetTaskResult,
        )

        try:
            await self._on_remote_id(task.task_id)
            while task.status in ("working", "input_required"):
                await self._heard(None, None, task.status_message or task.status)
                pause = task.poll_interval / 1000 if task.poll_interval else POLL_SECONDS
                await anyio.sleep(min(pause, LONGEST_POLL_SECONDS))
                asked = GetTaskRequest(params=GetTaskRequestParams(task_id=task.task_id))
                task = await self._session.send_request(asked, GetTaskResult)
            wanted = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=task.task_id))
            return await self._session.send_request(wanted, CallToolResult)
        except anyio.get_cancelled_exc_class():
            await self._cancel(task.task_id)
            raise

    async def _cancel(self, task_id: str) -> None:
        from mcp import MCPError
        from mcp_types import CancelTaskRequest, CancelTaskRequestParams, CancelTaskResult
        from pydantic import ValidationError

        request = CancelTaskRequest(params=CancelTaskRequestParams(task_id=task_id))
        with anyio.move_on_after(CANCELLING_SECONDS, shield=True):
            try:
                await self._session.send_request(request, CancelTaskResult)
            except (MCPError, ValidationError):
                return  # it has ended meanwhile, or the server has

    async def _heard(self, progress: float | None, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if now - self._told_at < PROGRESS_SECONDS:
            return
        self._told_at = now
        far = "" if progress is None else f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        text = ": ".join(part for part in (far, message) if part)
        await self._on_progress(self._invocation.operation_id, text)
