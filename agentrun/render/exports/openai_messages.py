"""The conversation as the OpenAI API takes it: a JSON array of chat messages.

https://platform.openai.com/docs/api-reference/chat/create: each call of an assistant's message is followed by one
`tool` message with its id. What is said there of a call that was stopped, skipped or failed is what the model was told
of it, so nobody can take it for a result.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.records.codec import Doc, encode_line
from agentrun.records.exported import Export, ExportedCall, ExportedTurn, RunOver, Said
from agentrun.records.message import COMPACT, QUESTION
from agentrun.render.exports.pieces import array


def write(export: Export) -> Iterator[bytes]:
    """The messages, oldest first. What agentrun itself said stands there as `system`."""
    yield from array(_messages(export))
    yield b"\n"


def _messages(export: Export) -> Iterator[Doc]:
    for said in export.copied():
        yield from _said(said)
    for run in export.runs():
        for step in run.steps():
            match step:
                case Said():
                    yield from _said(step)
                case ExportedTurn():
                    yield from _turn(step)
                case RunOver():
                    yield from _over(step)


def _said(said: Said) -> Iterator[Doc]:
    message = said.message
    # A question is part of the reply that asked it; of a copied one there is no reply.
    is_in_reply = message.mode == QUESTION and said.run == message.run_id
    if not (said.is_permission or is_in_reply or message.mode == COMPACT):
        yield {"role": message.role, "content": said.told}


def _turn(turn: ExportedTurn) -> Iterator[Doc]:
    text = "\n\n".join(part for part in (turn.text, turn.question) if part)
    if turn.calls:
        yield {"role": "assistant", "content": text or None, "tool_calls": [_call(call) for call in turn.calls]}
        for call in turn.calls:
            yield {"role": "tool", "tool_call_id": call.call_id, "content": call.told}
    elif text:
        yield {"role": "assistant", "content": text}
    if turn.remark:
        yield {"role": "user", "content": turn.remark}


def _call(call: ExportedCall) -> Doc:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else encode_line(arguments).decode("utf-8").rstrip("\n")
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _over(over: RunOver) -> Iterator[Doc]:
    if over.report is not None:
        yield {"role": "assistant", "content": over.report}
    elif over.closing is not None and over.closing.role == "system":
        yield {"role": "system", "content": over.closing.text}
