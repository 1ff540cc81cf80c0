"""What becomes of the calls of a reply before any of them runs: each is registered, in the order of the reply."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from agentrun.agent.events import ToolRegistered
from agentrun.agent.protocols import Stretch, Tool
from agentrun.agent.transcript import Transcript
from agentrun.records.codec import Doc
from agentrun.records.operation import READ


def idempotency_key(stretch: Stretch, transcript: Transcript, operation_id: str) -> str:
    """The same for each attempt of an action in whatever stretch, and another for any other action.

    When the run was accepted belongs to it: a session that was removed may have had the same name.
    """
    first = stretch.events[0]
    action = "\n".join((first.session_id, first.run_id, transcript.accepted_at, operation_id))
    return hashlib.sha256(action.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def registrations(
    stretch: Stretch, transcript: Transcript, tools: Mapping[str, Tool], turn_id: str, calls: Sequence[Doc]
) -> list[ToolRegistered]:
    """What is recorded of `calls`, `{id name arguments}` each, once the model has asked for them."""
    names = zip(transcript.new_operation_ids(), calls, strict=False)
    return [
        _registration(call, tools.get(str(call.get("name"))), turn_id, each, idempotency_key(stretch, transcript, each))
        for each, call in names
    ]


def _registration(call: Doc, tool: Tool | None, turn_id: str, operation_id: str, key: str) -> ToolRegistered:
    arguments = call.get("arguments")
    return ToolRegistered(
        operation_id=operation_id,
        turn_id=turn_id,
        tool_call_id=str(call["id"]),
        tool_name=str(call.get("name")),
        arguments=arguments if isinstance(arguments, dict) else {},
        # A tool that does not exist does nothing.
        effect=tool.spec.effect if tool else READ,
        resource=tool.spec.resource if tool else None,
        idempotency_key=key,
        starts=tool is not None and isinstance(arguments, dict) and _needs_nobody(tool),
    )


def _needs_nobody(tool: Tool) -> bool:
    """Whether a call of it may start as soon as it is registered: neither the user nor another run is asked first."""
    return tool.spec.approve == "auto" and tool.spec.resource is None
