"""A server of tools that does what a test wants: speaks the protocol over stdio, and writes what it hears to a file."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

HEARD = open(os.environ["HEARD"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115
PNG = "iVBORw0KGgo="


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}, **more}


READ_ONLY = {"annotations": {"readOnlyHint": True}}
TOOLS = [
    tool("echo", **READ_ONLY),
    tool("write.it"),
    tool("slow", **READ_ONLY),
    tool("slow_write"),
    tool("die"),
    tool("fail"),
    tool("picture", **READ_ONLY),
    tool("mixed", **READ_ONLY),
    tool("much", **READ_ONLY),
    tool("structured", **READ_ONLY),
    tool("garbage", **READ_ONLY),
    tool("progress", **READ_ONLY),
    tool("related", **READ_ONLY),
    tool("task", execution={"taskSupport": "required"}),
    tool("slow_task", execution={"taskSupport": "required"}),
]
POLLS = {"task-1": 0}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in texts], **more}


def task(name: str, status: str) -> dict[str, Any]:
    at = "2026-01-01T00:00:00Z"
    return {"taskId": name, "status": status, "createdAt": at, "lastUpdatedAt": at, "ttl": None, "pollInterval": 10}


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    """What the tool answers; None: nothing."""
    arguments = params.get("arguments", {})
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    match params["name"]:
        case "echo" | "write.it":
            return text(json.dumps(arguments), str(params["_meta"].get("agentrun/idempotencyKey")))
        case "slow" | "slow_write":
            # What is said to it until its input ends is heard, however late a busy machine lets it.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return None
        case "die":
            subprocess.Popen(["sleep", "1000"])  # holds stdout open
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(7)
        case "fail":
            return text(os.environ.get("FAILS_WITH", "no such table"), isError=True)
        case "picture":
            return {"content": [image]}
        case "mixed":
            return {"content": [{"type": "text", "text": "a dot:"}, image]}
        case "much":
            return text("x" * 200_000)
        case "structured":
            return {"content": [], "structuredContent": {"lamps": 12}}
        case "garbage":
            return {"content": 7}
        case "related":
            return text("done", _meta={"io.modelcontextprotocol/related-task": {"taskId": "job-9"}})
        case "progress":
            token = params["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": 3, "total": 10, "message": "counting"}
            say({"method": "notifications/progress", "params": progress})
            time.sleep(0.05)
            return text("counted")
        case "task" | "slow_task":
            return {"task": task("task-1" if params["name"] == "task" else "task-2", "working")}
    raise AssertionError(params)


def page(number: int, tools: int, pad: int = 0) -> dict[str, Any]:
    """One of endlessly many pages, with so many tools that are described at such length."""
    listed = [tool(f"t{number * tools + each}", title="x" * pad, **READ_ONLY) for each in range(tools)]
    return {"tools": listed, "nextCursor": str(number + 1)}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            if "GREETING" in os.environ:
                print(os.environ["GREETING"], flush=True)
            tasks = {"requests": {"tools": {"call": {}}}, "cancel": {}}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "tasks": tasks},
                "serverInfo": {"name": "small", "version": "1"},
            }
        case "tools/list":
            if "PAGES" in os.environ:
                return page(int(params.get("cursor", 0)), **json.loads(os.environ["PAGES"]))
            # Two pages, the second one with one tool.
            last = params.get("cursor") == "2"
            return {"tools": TOOLS[-1:]} if last else {"tools": TOOLS[:-1], "nextCursor": "2"}
        case "tools/call":
            return call(params)
        case "tasks/get":
            name = params["taskId"]
            POLLS[name] = POLLS.get(name, 0) + 1
            return task(name, "completed" if name == "task-1" and POLLS[name] > 1 else "working")
        case "tasks/result":
            return text("the task is done")
        case "tasks/cancel":
            return task(params["taskId"], "cancelled")
    return {}


def main() -> None:
    HEARD.write(json.dumps({"environment": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}) + "\n")
    if "REFUSE" in os.environ:
        print(os.environ["REFUSE"], file=sys.stderr)
        sys.exit(3)
    for line in sys.stdin:
        HEARD.write(line)
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params", {}))
            if result is not None:
                say({"id": message["id"], "result": result})
    HEARD.write('{"closed": true}\n')


main()
