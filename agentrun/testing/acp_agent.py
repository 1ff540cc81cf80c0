"""A small agent that speaks the Agent Client Protocol over stdio, for tests: it does what the prompt says.

    python -m agentrun.testing.acp_agent [FLAG...]

The words of a prompt are its orders, one after the other; what it does not know it says. Flags change what it offers:
`no-load`, `no-greeting`, `refuse`, `steering`, `steering-refused`. `says TEXT...` says one text per turn, the last one
again, whatever the prompt; `dies` and `hangs` do that. It writes what it hears to the file that $HEARD names, and keeps
its conversations beside that file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

Doc = dict[str, Any]

CHILD_SECONDS = "1000"
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class SmallAgent:
    """One connection. `flags` are those of the command line."""

    def __init__(self, heard: str, flags: list[str]) -> None:
        self._heard = heard
        self._flags = flags
        self._next = 100
        self._cancelled = False
        self._held: list[Doc] = []
        self._input = sys.stdin.buffer

    def run(self) -> None:
        """Answers until nobody asks any more."""
        self._note({"started": os.getpid(), "cwd": os.getcwd(), "environment": dict(os.environ)})
        if "refuse" in self._flags:
            os.write(2, b"no licence\n")
            sys.exit(3)
        for message in self._messages():
            self._serve(message)
        self._note({"closed": True})

    # Messages.

    def _messages(self) -> Iterator[Doc]:
        while True:
            if self._held:
                yield self._held.pop(0)
                continue
            line = self._input.readline()
            if not line:
                return
            message = json.loads(line)
            self._note(message)
            yield message

    def _note(self, what: Doc) -> None:
        with open(self._heard, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")

    def _send(self, message: Doc) -> None:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _update(self, session: str, **update: Any) -> None:
        self._send({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def _say(self, session: str, text: str) -> None:
        self._update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def _ask(self, method: str, params: Doc) -> Doc:
        """Asks the client, and waits; what else comes meanwhile waits too, but for a cancel."""
        self._next += 1
        self._send({"id": self._next, "method": method, "params": params})
        while True:
            message = json.loads(self._input.readline() or b'{"id": 0}')
            self._note(message)
            if message.get("method") == "session/cancel":
                self._cancelled = True
            elif message.get("id") == self._next or message == {"id": 0}:
                return dict(message.get("result") or {})
            else:
                self._held.append(message)

    # Requests.

    def _serve(self, message: Doc) -> None:
        if "id" not in message or "method" not in message:
            return
        method, params = message["method"], message.get("params") or {}
        answer = {"initialize": self._hello, "session/new": self._new, "session/load": self._load}.get(method)
        if method == "session/prompt":
            self._send({"id": message["id"], "result": self._prompt(params)})
        elif answer:
            result = answer(params)
            self._send({"id": message["id"], **({"result": result} if result is not None else _UNKNOWN)})
        else:
            self._send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})

    def _hello(self, params: Doc) -> Doc:
        if "no-greeting" in self._flags:
            os._exit(0)
        offered = {"_session/steering": any(flag.startswith("steering") for flag in self._flags)}
        return {
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": "no-load" not in self._flags, "_meta": offered},
        }

    def _new(self, params: Doc) -> Doc:
        name = f"small-{os.getpid()}"
        self._remember(name, "")
        return {"sessionId": name}

    def _load(self, params: Doc) -> Doc | None:
        name = params["sessionId"]
        if not os.path.exists(f"{self._heard}.{name}"):
            return None
        self._say(name, "what was said before")
        return {}

    def _remember(self, session: str, text: str) -> None:
        with open(f"{self._heard}.{session}", "a", encoding="utf-8") as file:
            file.write(text + "\n")

    # Turns.

    def _prompt(self, params: Doc) -> Doc:
        session, self._cancelled = params["sessionId"], False
        text = "".join(part.get("text", "") for part in params["prompt"])
        self._remember(session, text)
        match self._flags:
            case ["says", *texts]:
                self._say(session, self._next_text(texts))
                return {"stopReason": "end_turn"}
            case ["dies"]:
                text = "half die"
            case ["hangs"]:
                text = "hang"
            case _:
                pass
        for number, order in enumerate(text.split(), start=1):
            self._obey(session, f"call-{number}", order)
            if self._cancelled:
                return {"stopReason": "cancelled"}
        reason = text.split()[-1].removeprefix("stop:") if "stop:" in text else "end_turn"
        return {"stopReason": reason, "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}}

    def _next_text(self, texts: list[str]) -> str:
        """One after the other over all processes that write to the same file."""
        with open(f"{self._heard}.said", "a+", encoding="utf-8") as file:
            number = file.tell()
            file.write(".")
        return texts[min(number, len(texts) - 1)]

    def _obey(self, session: str, call_id: str, order: str) -> None:
        match order:
            case "read" | "edit":
                self._call(session, call_id, order)
            case "permission":
                self._permission(session, call_id)
            case "form":
                self._form(session)
            case "recall":
                with open(f"{self._heard}.{session}", encoding="utf-8") as file:
                    self._say(session, repr(file.read().split()[:-1]))
            case "hang" | "hang-edit":
                self._hang(session, call_id, order)
            case "die":
                subprocess.Popen(["sleep", CHILD_SECONDS])
                os.write(2, b"out of memory\n")
                os._exit(7)
            case "terminal":
                self._ask("terminal/create", {"sessionId": session, "command": "true"})
            case _:
                if not order.startswith("stop:"):
                    self._say(session, f"{order} ")

    def _call(self, session: str, call_id: str, kind: str) -> None:
        known = {"toolCallId": call_id, "title": f"{kind} a.txt", "kind": kind, "rawInput": {"path": "a.txt"}}
        self._update(session, sessionUpdate="tool_call", status="pending", **known)
        self._update(session, sessionUpdate="tool_call_update", toolCallId=call_id, status="in_progress")
        content = [{"type": "content", "content": {"type": "text", "text": f"{kind} done"}}]
        done = {"toolCallId": call_id, "status": "completed", "content": content}
        self._update(session, sessionUpdate="tool_call_update", **done)

    def _permission(self, session: str, call_id: str) -> None:
        call = {"toolCallId": call_id, "title": "rm -r x", "kind": "execute", "rawInput": {"command": "rm -r x"}}
        self._update(session, sessionUpdate="tool_call", status="pending", **call)
        asked = {"sessionId": session, "toolCall": {"toolCallId": call_id}, "options": OPTIONS}
        outcome = self._ask("session/request_permission", asked).get("outcome") or {}
        if outcome.get("optionId") == "yes":
            self._update(session, sessionUpdate="tool_call_update", toolCallId=call_id, status="in_progress")
            self._update(session, sessionUpdate="tool_call_update", toolCallId=call_id, status="completed")
            self._say(session, "removed ")
        else:
            self._say(session, f"not removed ({outcome.get('optionId') or outcome.get('outcome')}) ")

    def _form(self, session: str) -> None:
        schema = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}}
        asked = {"sessionId": session, "mode": "form", "message": "Which colour?", "requestedSchema": schema}
        self._say(session, json.dumps(self._ask("elicitation/create", asked)))

    def _hang(self, session: str, call_id: str, order: str) -> None:
        """Waits until it is cancelled, with a process below; a call that it was making ends with the cancel."""
        subprocess.Popen(["setsid", "sleep", CHILD_SECONDS])
        if order == "hang-edit":
            self._update(
                session, sessionUpdate="tool_call", toolCallId=call_id, title="edit", kind="edit", status="in_progress"
            )
        self._say(session, "hanging ")
        for message in self._messages():
            if message.get("method") == "_session/steering":
                taken = "steering-refused" not in self._flags
                self._send({"id": message["id"], "result": {"outcome": "injected" if taken else "promptRequired"}})
                if taken:
                    self._say(session, "steered: " + message["params"]["prompt"][0]["text"])
                return
            if message.get("method") == "session/cancel":
                self._cancelled = True
                if order == "hang-edit":
                    ended = {"toolCallId": call_id, "status": "completed"}
                    self._update(session, sessionUpdate="tool_call_update", **ended)
                return


_UNKNOWN: Doc = {"error": {"code": -32602, "message": "no such session"}}


if __name__ == "__main__":
    SmallAgent(os.environ["HEARD"], sys.argv[1:]).run()
