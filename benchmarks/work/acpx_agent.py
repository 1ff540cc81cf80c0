"""The agent that `acpx` drives: it begins one prompt, and notes when it is told to cancel it.

python acpx_agent.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time


def main(folder: str) -> None:
    """Answers one request after the other, as the Agent Client Protocol has them."""
    prompt = None
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            answer(message["id"], {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}})
        elif method == "session/new":
            answer(message["id"], {"sessionId": f"s-{time.monotonic_ns()}"})
        elif method == "session/prompt":
            prompt = message["id"]
            note(folder, "working", str(os.getpid()))
        elif method == "session/cancel":
            note(folder, "noticed", str(time.monotonic_ns()))
            if prompt is not None:
                answer(prompt, {"stopReason": "cancelled"})
        elif "id" in message and method:
            answer(message["id"], {})


def answer(number: int, result: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)


def note(folder: str, name: str, text: str) -> None:
    """A file that is whole as soon as it is there."""
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


if __name__ == "__main__":
    main(sys.argv[1])
