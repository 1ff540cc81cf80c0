"""Session files of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.

A line is `{timestamp type payload}`. `response_item` has the items of the conversation as the Responses API has them;
`event_msg` tells the same once more for the screen, and besides how a turn ended and what it used. Files of the first
versions have the items themselves as lines. What is not known here is counted and passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from agentrun.adapters.foreign.lines import doc_of, docs_of, lines_of, number_of, text_of, time_of
from agentrun.records.codec import Doc, decode, encode_line
from agentrun.records.foreign import Call, Head, Over, PassedOver, Replied, Resulted, Said, Told, Used

KIND = "codex"
_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning"}
# What the program puts into the user's mouth.
_NOT_SAID = (
    "<environment_context>", "<user_instructions>", "<permissions instructions>", "<INSTRUCTIONS>", "<turn_aborted>",
    "<collaboration_mode>", "<skill>", "<skills_instructions>", "<subagent_notification>", "# AGENTS.md instructions",
)  # fmt: skip
# The screen's copy of what the items tell.
_TWICE = frozenset({"user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "task_started"})


def is_line(doc: Doc) -> bool:
    """Whether Codex may have written this."""
    return (doc.get("type") in _TYPES and isinstance(doc.get("payload"), dict)) or _is_old_head(doc)


def read(source: BinaryIO) -> Iterator[Told]:
    """What the file tells."""
    reader = _Reader()
    for line in lines_of(source):
        yield from reader.take(line) if isinstance(line, dict) else [PassedOver(line)]


def _is_old_head(doc: Doc) -> bool:
    return "type" not in doc and isinstance(doc.get("id"), str) and "timestamp" in doc and "instructions" in doc


class _Reader:
    def __init__(self) -> None:
        self._has_head = False
        self._model: str | None = None
        # Items of the model that follow each other are one reply: what stands between two of them ends it.
        self._group = 0

    def take(self, line: Doc) -> Iterator[Told]:
        kind, payload, at = text_of(line.get("type")), doc_of(line.get("payload")), time_of(line.get("timestamp"))
        if kind == "session_meta" or _is_old_head(line):
            yield from self._head(payload or line, at)
        elif kind == "turn_context":
            self._model = text_of(payload.get("model")) or self._model
        elif kind == "response_item":
            yield from self._item(payload, at)
        elif kind == "event_msg":
            yield from self._event(payload, at)
        elif kind in _ITEMS and not payload:
            yield from self._item(line, at)
        else:
            yield PassedOver((kind or "line without a type")[:40])

    def _head(self, meta: Doc, at: str | None) -> Iterator[Told]:
        if self._has_head:
            yield PassedOver("session_meta")
            return
        self._has_head = True
        yield Head(
            text_of(meta.get("id")),
            time_of(meta.get("timestamp")) or at,
            working_directory=text_of(meta.get("cwd")),
            version=text_of(meta.get("cli_version")),
        )

    def _item(self, item: Doc, at: str | None) -> Iterator[Told]:
        kind = text_of(item.get("type")) or "item without a type"
        if kind == "message" and item.get("role") == "user":
            yield from self._user(item, at)
        elif kind == "message" and item.get("role") == "assistant":
            text = "\n\n".join(_texts(item))
            yield self._reply(text, (), at, text_of(item.get("id")))
        elif kind in _CALLS:
            call_id = text_of(item.get("call_id")) or text_of(item.get("id")) or ""
            name = text_of(item.get("name")) or "local_shell"
            yield self._reply("", (Call(call_id, name, _arguments(item)),), at, None)
        elif kind in _OUTPUTS:
            self._group += 1
            output, is_error = _output(item.get("output"))
            yield Resulted(text_of(item.get("call_id")) or "", output, at, is_error)
        else:
            role = f" of {item.get('role')}" if kind == "message" else ""
            yield PassedOver(f"{kind}{role}"[:40])

    def _reply(self, text: str, calls: tuple[Call, ...], at: str | None, origin: str | None) -> Replied:
        return Replied(str(self._group), text, calls, at, self._model, origin=origin)

    def _user(self, item: Doc, at: str | None) -> Iterator[Told]:
        self._group += 1
        texts = [text for text in _texts(item) if text.strip()]
        said = [text for text in texts if not text.lstrip().startswith(_NOT_SAID)]
        if len(said) < len(texts):
            yield PassedOver("note of the program")
        if said:
            yield Said("\n\n".join(said), at, text_of(item.get("id")))

    def _event(self, event: Doc, at: str | None) -> Iterator[Told]:
        kind = text_of(event.get("type")) or "event without a type"
        if kind == "token_count":
            used = doc_of(doc_of(event.get("info")).get("last_token_usage"))
            if used:
                yield Used(_usage(used))
        elif kind in ("turn_aborted", "task_complete", "turn_complete"):
            self._group += 1
            aborted = kind == "turn_aborted"
            reason = f"interrupted: {text_of(event.get('reason')) or 'by the user'}" if aborted else None
            yield Over("cancelled" if aborted else "completed", reason, at)
        elif kind == "error":
            yield Over("failed", text_of(event.get("message")) or "an error", at)
        elif kind not in _TWICE:
            yield PassedOver(kind[:40])


def _texts(item: Doc) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    return [text for part in docs_of(content) if (text := text_of(part.get("text"))) is not None]


def _arguments(item: Doc) -> Doc | str:
    given = item.get("arguments", item.get("input", item.get("action")))
    if isinstance(given, dict):
        return given
    text = text_of(given) or ""
    try:
        return decode(text.encode("utf-8", "replace"))
    except ValueError:
        return text


def _output(output: object) -> tuple[str, bool]:
    """The text of an output, and whether it says that the call failed."""
    if isinstance(output, str):
        return output, False
    if isinstance(output, list):
        return "\n".join(text_of(part.get("text")) or "" for part in docs_of(output)), False
    content = doc_of(output)
    text = text_of(content.get("content"))
    return text if text is not None else encode_line(content).decode("utf-8").strip(), content.get("success") is False


def _usage(used: Doc) -> Doc:
    counted: Doc = {
        "inputTokens": number_of(used.get("input_tokens")),
        "outputTokens": number_of(used.get("output_tokens")),
    }
    cached = number_of(used.get("cached_input_tokens"))
    return counted | ({"cacheReadTokens": cached} if cached else {})
