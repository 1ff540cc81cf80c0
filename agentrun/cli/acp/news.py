"""What happens in a run, as the updates that an editor shows."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.operation import READ, Operation
from agentrun.states import EventType, OperationStatus

E = EventType


class News:
    """Turns what a run records into updates, each thing once. `own` are the messages that the editor sent itself."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        self.last_seq = 0
        self._said = ""
        self._said_before = ""
        self._is_asked = False

    def of_event(self, event: Event) -> Iterator[Doc]:
        """The updates that an event is; none for one that was told before."""
        if event.seq <= self.last_seq:
            return
        self.last_seq = event.seq
        payload = event.payload
        match event.type:
            case E.MODEL_REQUEST_STARTED:
                self._said_before, self._said, self._is_asked = self._said, "", True
            case E.MODEL_REQUEST_FINISHED:
                self._is_asked = False
                yield from self.of_reply(str(payload.get("text") or ""))
            case E.TOOL_REGISTERED:
                yield call(payload["operationId"], payload["toolName"], payload["effect"], payload["arguments"])
            case E.TOOL_STARTED:
                yield _changed(payload, "in_progress")
            case E.TOOL_PROGRESS:
                yield _changed(payload, "in_progress", str(payload.get("text")))
            case E.TOOL_FINISHED if not payload.get("willRetry"):
                yield ended(payload["operationId"], payload.get("status"), payload.get("result"), payload.get("error"))
            case E.RUN_WAITING_INPUT if payload.get("kind") == "question":
                yield said(f"\n\n{payload.get('text')}" if self._said else str(payload.get("text")))
            case _:
                pass

    def of_message(self, message: Message) -> Iterator[Doc]:
        """What somebody said in the meantime, from elsewhere."""
        if message.is_input and message.seq not in self.own:
            self.own.add(message.seq)
            yield asked(message.text)

    def of_draft(self, text: str) -> Iterator[Doc]:
        """What is new of the reply under way, of which `text` is the whole so far."""
        # The draft on disk is that of the reply before until this one has its first words. And it may be of a reply
        # whose request was begun since the events were read: its words come with the next ones.
        if self._is_asked and (self._said or not self._said_before.startswith(text)):
            yield from self.of_reply(text)

    def of_reply(self, text: str) -> Iterator[Doc]:
        """What was not said yet of a reply."""
        if text.startswith(self._said) and len(text) > len(self._said):
            fresh, self._said = text[len(self._said) :], text
            yield said(fresh)


def replayed(message: Message, operations: list[Operation]) -> Iterator[Doc]:
    """A message of the past; before a report, the calls that led to it."""
    if message.role == "user":
        yield asked(message.text)
        return
    for each in operations:
        yield call(each.operation_id, each.name, each.effect, each.arguments)
        yield ended(each.operation_id, each.status, each.result, each.error)
    yield said(message.text)


def said(text: str) -> Doc:
    """The agent says something."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def asked(text: str) -> Doc:
    """The user says something."""
    return {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}


def call(operation_id: str, name: str, effect: object, arguments: Doc | None) -> Doc:
    """A call that the model asks for."""
    kind = "read" if effect == READ else "other"
    known: Doc = {"toolCallId": operation_id, "title": name, "kind": kind, "rawInput": arguments or {}}
    return {"sessionUpdate": "tool_call", "status": "pending", **known}


def ended(operation_id: str, status: object, result: object, error: object) -> Doc:
    """How a call ended, in the protocol's two words; what is not done is told in ours."""
    succeeded = status == OperationStatus.SUCCEEDED
    words = str(result or "") if succeeded else f"{status}: {error or 'no reason given'}"
    return _changed({"operationId": operation_id}, "completed" if succeeded else "failed", words)


def _changed(payload: Doc, status: str, text: str = "") -> Doc:
    update: Doc = {"sessionUpdate": "tool_call_update", "toolCallId": payload["operationId"], "status": status}
    return update | ({"content": [{"type": "content", "content": {"type": "text", "text": text}}]} if text else {})
