"""What a command that is an agent prints: plain text, or JSON lines of the types below.

Which of the two is told by the configuration, or else by the first line: a JSON object with one of these types begins
JSON lines, and anything else is text.
"""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable

from agentrun.adapters.agents.activity import Call
from agentrun.adapters.agents.turns import AgentFailed, Exchange, Said
from agentrun.adapters.process.output import Lines
from agentrun.records.codec import Doc, decode
from agentrun.records.fields import is_count
from agentrun.records.operation import READ, WRITE
from agentrun.records.session import conversation_name
from agentrun.states import OperationStatus as Status

# A line may hold the whole result of a tool.
LINE_BYTES = 16 * 1024 * 1024
# So much without the end of a line is no JSON line with which an agent would begin.
_FIRST_LINE = 64 * 1024

_STATUS = {"succeeded": Status.SUCCEEDED, "failed": Status.FAILED, "cancelled": Status.CANCELLED}


class Output:
    """Takes up what is printed in one turn. `session_id` is the agent's name for the conversation, if it says one."""

    def __init__(self, exchange: Exchange, form: str) -> None:
        self.session_id: str | None = None
        self._exchange = exchange
        self._form = form
        self._first = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = Lines(LINE_BYTES)
        self._ignored = 0
        self._report: str | None = None
        self._question: str | None = None
        self._usage: Doc | None = None

    async def take(self, chunk: bytes) -> None:
        """More that was printed. Raises AgentFailed if it is too much, or says that the agent has failed."""
        if self._form == "auto":
            self._first += chunk
            chunk = self._tell_form(at_end=False)
        await self._read(chunk)

    async def _read(self, chunk: bytes) -> None:
        if self._form == "text":
            await self._exchange.say(self._decoder.decode(chunk))
        elif self._form == "json-lines":
            self._lines.write(chunk)
            await self._take_lines()

    async def end(self) -> Said:
        """What the agent has said, now that nothing more will come. Raises AgentFailed."""
        if self._form == "auto":
            await self._read(self._tell_form(at_end=True))
        if self._form == "text":
            await self._exchange.say(self._decoder.decode(b"", final=True))
        self._lines.end()
        await self._take_lines()
        ignored = self._ignored + self._lines.dropped
        extra: Doc = {"ignoredLines": ignored} if ignored else {}
        text = self._exchange.text if self._report is None else self._report
        return Said(text, self._question, usage=self._usage, extra=extra)

    def _tell_form(self, *, at_end: bool) -> bytes:
        """Decides for a form as soon as it can be told; returns what is to be read in it."""
        line, newline, _ = self._first.lstrip().partition(b"\n")
        is_whole = newline or (line and not line.startswith(b"{")) or len(self._first) > _FIRST_LINE
        if not is_whole and not at_end:
            return b""
        self._form = "json-lines" if _type_of(line) in _TAKERS else "text"
        first, self._first = self._first, b""
        return first

    async def _take_lines(self) -> None:
        while self._lines.complete:
            line = self._lines.complete.popleft()
            take = _TAKERS.get(_type_of(line))
            if take is None:
                self._ignored += bool(line.strip())
            else:
                await take(self, decode(line))

    # One per type of line.

    async def _take_session(self, line: Doc) -> None:
        self.session_id = conversation_name(line.get("id")) or self.session_id

    async def _take_text(self, line: Doc) -> None:
        await self._exchange.say(_text(line.get("text")))

    async def _take_report(self, line: Doc) -> None:
        self._report = _text(line.get("text"))

    async def _take_question(self, line: Doc) -> None:
        self._question = _text(line.get("text")) or None

    async def _take_usage(self, line: Doc) -> None:
        told = {name: line.get(name) for name in ("inputTokens", "outputTokens")}
        counts = {name: count for name, count in told.items() if is_count(count) and count >= 0}
        before = self._usage or {}
        self._usage = before | {name: before.get(name, 0) + count for name, count in counts.items()}

    async def _take_tool(self, line: Doc) -> None:
        arguments = line.get("arguments")
        call = Call(
            call_id=_text(line.get("id")) or _text(line.get("name")),
            name=_text(line.get("name")) or "tool",
            arguments=arguments if isinstance(arguments, dict) else {},
            effect=READ if line.get("effect") == READ else WRITE,
        )
        activity = self._exchange.activity
        status = _STATUS.get(_text(line.get("status")))
        if status is None or activity.operation_id(call.call_id) is None:
            await activity.started(call)
        if remote_id := _text(line.get("remoteId")):
            await activity.has_remote_id(call.call_id, remote_id)
        if status is not None:
            result = _text(line.get("result")).encode("utf-8", "replace")
            await activity.finished(call, status, result, _text(line.get("error")) or None)

    async def _take_error(self, line: Doc) -> None:
        raise AgentFailed(_text(line.get("text")) or "it says that it has failed")


def _type_of(line: bytes) -> str:
    try:
        kind = decode(line).get("type")
    except ValueError:
        return ""
    return kind if isinstance(kind, str) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_TAKERS: dict[str, Callable[[Output, Doc], Awaitable[None]]] = {
    "session": Output._take_session,
    "text": Output._take_text,
    "tool": Output._take_tool,
    "report": Output._take_report,
    "question": Output._take_question,
    "usage": Output._take_usage,
    "error": Output._take_error,
}
