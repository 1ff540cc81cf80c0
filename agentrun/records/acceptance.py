"""What follows from an accepted prompt: the first event of its run, the same whoever makes it and whenever."""

from __future__ import annotations

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.states import EventType


def first_event(account: str, prompt: Message) -> Event:
    """The `run.accepted` that follows from the line of a prompt."""
    accept = prompt.accept or {}
    payload: Doc = {
        "messageSeq": prompt.seq,
        "inputMode": prompt.mode,
        "accountId": account,
        "agent": accept.get("agent"),
        "key": prompt.key,
        "references": accept.get("references") or [],
        "attachments": accept.get("attachments") or [],
        "timeout": accept.get("timeout"),
        "config": accept.get("config"),
        "parentRun": accept.get("parentRun"),
        "continues": accept.get("continues"),
        "actor": prompt.actor,
    }
    return Event(prompt.session_id, prompt.run_id, 1, EventType.RUN_ACCEPTED.value, prompt.at, 0, payload)
