"""Session files of Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`.

A line is an object with a `type`. `user` and `assistant` carry a message of the Anthropic API; one reply of the model
may be spread over several lines with the same `message.id`, a line for each block of content. Results of tools come as
`user` lines. What was said in a side chain belongs to a helper agent, and is not part of the conversation. The format
is described nowhere; what is not known here is counted and passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from agentrun.adapters.foreign.lines import doc_of, docs_of, lines_of, number_of, text_of, time_of
from agentrun.records.codec import Doc
from agentrun.records.foreign import Call, Head, Over, PassedOver, Replied, Resulted, Said, Titled, Told

KIND = "claude-code"
_INTERRUPTED = "[Request interrupted by user"
# What the program puts into the user's mouth.
_NOT_SAID = ("<system-reminder>", "<local-command-", "<command-name>", "<command-message>", "<task-notification>")
_TYPES = frozenset({"user", "assistant", "system", "summary", "file-history-snapshot", "queue-operation", "attachment"})


def is_line(doc: Doc) -> bool:
    """Whether Claude Code may have written this."""
    return doc.get("type") in _TYPES and ("sessionId" in doc or "leafUuid" in doc or "messageId" in doc)


def read(source: BinaryIO) -> Iterator[Told]:
    """What the file tells."""
    reader = _Reader()
    for line in lines_of(source):
        yield from reader.take(line) if isinstance(line, dict) else [PassedOver(line)]


class _Reader:
    def __init__(self) -> None:
        self._has_head = False
        # A file of a helper agent is a side chain from its first line on.
        self._side: bool | None = None

    def take(self, line: Doc) -> Iterator[Told]:
        kind = text_of(line.get("type")) or "line without a type"
        title = line.get("summary") if kind == "summary" else line.get("customTitle") or line.get("aiTitle")
        if isinstance(title, str) and title:
            yield Titled(title)
        elif kind in ("user", "assistant"):
            yield from self._message(kind, line)
        else:
            yield PassedOver(kind[:40])

    def _message(self, kind: str, line: Doc) -> Iterator[Told]:
        side = line.get("isSidechain") is True
        self._side = side if self._side is None else self._side
        if side is not self._side:
            yield PassedOver("side chain")
            return
        if not self._has_head:
            self._has_head = True
            yield Head(
                text_of(line.get("sessionId")),
                time_of(line.get("timestamp")),
                working_directory=text_of(line.get("cwd")),
                version=text_of(line.get("version")),
            )
        if kind == "assistant":
            yield from _reply(line)
        elif line.get("isMeta") is True or line.get("isCompactSummary") is True:
            yield PassedOver("note of the program")
        else:
            yield from _user(line)


def _user(line: Doc) -> Iterator[Told]:
    at, origin = time_of(line.get("timestamp")), text_of(line.get("uuid"))
    content = doc_of(line.get("message")).get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else docs_of(content)
    texts: list[str] = []
    for block in blocks:
        kind = block.get("type")
        text = text_of(block.get("text")) or ""
        if kind == "tool_result":
            call_id = text_of(block.get("tool_use_id")) or ""
            yield Resulted(call_id, _output(block.get("content")), at, block.get("is_error") is True)
        elif kind != "text":
            yield PassedOver(f"{str(kind)[:40]} of the user")
        elif text.startswith(_INTERRUPTED):
            yield Over("cancelled", "interrupted by the user", at)
        elif text.lstrip().startswith(_NOT_SAID):
            yield PassedOver("note of the program")
        elif text:
            texts.append(text)
    if texts:
        yield Said("\n\n".join(texts), at, origin)


def _reply(line: Doc) -> Iterator[Told]:
    message, at = doc_of(line.get("message")), time_of(line.get("timestamp"))
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else docs_of(content)
    texts, calls = [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block.get("text")) or "")
        elif kind == "tool_use":
            name, call_id = text_of(block.get("name")) or "unnamed", text_of(block.get("id")) or ""
            calls.append(Call(call_id, name, doc_of(block.get("input"))))
        else:
            yield PassedOver(f"{str(kind)[:40]} of the model")
    text = "\n\n".join(each for each in texts if each)
    if line.get("isApiErrorMessage") is True:
        yield Over("failed", text or "the request to the model failed", at)
        return
    group = text_of(message.get("id")) or text_of(line.get("uuid")) or ""
    if text or calls:
        model, stop = text_of(message.get("model")), text_of(message.get("stop_reason"))
        usage = _usage(doc_of(message.get("usage")))
        yield Replied(group, text, tuple(calls), at, model, usage, stop, origin=group)


def _usage(usage: Doc) -> Doc | None:
    if "input_tokens" not in usage and "output_tokens" not in usage:
        return None
    read, written = (number_of(usage.get(f"cache_{what}_input_tokens")) for what in ("read", "creation"))
    counted: Doc = {"inputTokens": number_of(usage.get("input_tokens")) + read + written}
    counted["outputTokens"] = number_of(usage.get("output_tokens"))
    cached = {"cacheReadTokens": read, "cacheWriteTokens": written}
    return counted | {name: number for name, number in cached.items() if number}


def _output(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = docs_of(content)
    return "\n".join(text_of(part.get("text")) or f"[{str(part.get('type'))[:40]}, not taken in]" for part in parts)
