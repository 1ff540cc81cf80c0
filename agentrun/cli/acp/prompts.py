"""What an editor sends as a prompt, and what we ask it: permissions and questions, in the protocol's words."""

from __future__ import annotations

from typing import Any

from agentrun.errors import UsageError
from agentrun.records.codec import Doc


def text_of(blocks: Any) -> str:
    """The text of a prompt: its texts, the resources that go along, and the names of those that do not.

    Raises UsageError if there is none.
    """
    parts = [_text(block) for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    text = "\n\n".join(filter(None, parts))
    if not text.strip():
        raise UsageError("the prompt has no text")
    return text


def _text(block: Doc) -> str:
    resource = block.get("resource") if isinstance(block.get("resource"), dict) else {}
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "resource" if resource and "text" in resource:
            return f"[{resource.get('uri')}]\n{resource['text']}"
        case "resource_link":
            return f"[{block.get('name')}: {block.get('uri')}]"
        case kind:
            return f"[{kind}, which cannot be taken along]"


def asks_for(session_id: str, waiting: Doc) -> tuple[str, Doc]:
    """Method and parameters of the request that puts to the user what a run waits for."""
    text = str(waiting.get("text"))
    if waiting.get("kind") != "approval":
        answer = {"type": "object", "properties": {"answer": {"type": "string", "title": "Answer"}}}
        schema = answer | {"required": ["answer"]}
        form = {"sessionId": session_id, "mode": "form", "message": text, "requestedSchema": schema}
        return "elicitation/create", form
    call = {"toolCallId": waiting.get("operationId"), "title": text, "status": "pending"}
    options = [
        {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
        {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
    ]
    return "session/request_permission", {"sessionId": session_id, "toolCall": call, "options": options}


def form_answer(answer: Doc) -> str | None:
    """What the user wrote into the form; None if the form was put away."""
    content = answer.get("content")
    text = content.get("answer") if answer.get("action") == "accept" and isinstance(content, dict) else None
    return str(text) if text else None
