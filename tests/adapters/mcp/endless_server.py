"""A server over HTTP whose answers do not end, and that counts how much of them somebody took."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

JSON, EVENTS = "application/json", "text/event-stream"
MIB = b"x" * (1 << 20)
NAMES = ("whole", "json", "event", "events", "resumed", "packed", "refused")


def reply(number: object, result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


class Endless(ThreadingHTTPServer):
    """`taken` are the bytes of each endless answer that the system took before the connection was closed."""

    # Whoever closes it waits for them: what was taken is known then.
    daemon_threads = False

    def __init__(self, is_listing_endless: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.is_listing_endless = is_listing_endless
        self.taken: list[int] = []
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class _Connection(BaseHTTPRequestHandler):
    server: Endless

    def do_GET(self) -> None:
        self._begin(405, JSON)

    def do_DELETE(self) -> None:
        self._begin(200, JSON)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests += 1
        match message.get("method"):
            case "initialize":
                about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "endless", "version": "1"}}
                version = message["params"]["protocolVersion"]
                self._say(JSON, reply(message["id"], about | {"protocolVersion": version}))
            case "tools/list" if self.server.is_listing_endless:
                self._go_on(JSON, b'{"a": "', MIB)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
                self._say(JSON, reply(message["id"], {"tools": tools}))
            case "tools/call":
                self._call(message["id"], message["params"]["name"], message["params"]["_meta"])
            case _:
                self._begin(202, JSON)

    def _call(self, number: object, name: str, meta: dict[str, Any]) -> None:
        match name:
            case "whole":
                self._say(EVENTS, b"data: " + reply(number, text("y" * (3 << 20))) + b"\n\n")
            case "json":
                self._go_on(JSON, b'{"a": "', MIB)
            case "event":
                self._go_on(EVENTS, b"data: ", MIB)
            case "resumed":  # one that the library would go on with, from where it broke off
                self._go_on(EVENTS, b"id: 7\ndata:\n\ndata: ", MIB)
            case "events":
                told = {"progressToken": meta["progressToken"], "progress": 1}
                event = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}).encode()
                self._go_on(EVENTS, b"", b"data: " + event + b"\r\n\r\n", end=1 << 20)
                self.wfile.write(b"data: " + reply(number, text("over")) + b"\n\n")
            case "packed":
                self._begin(200, JSON, "gzip")
                self.wfile.write(gzip.compress(reply(number, text("z"))))
            case "refused":
                self._go_on(JSON, b'{"a": "', MIB, status=500)

    def _say(self, kind: str, body: bytes) -> None:
        self._begin(200, kind)
        self.wfile.write(body)

    def _go_on(self, kind: str, first: bytes, piece: bytes, *, end: int = 1 << 60, status: int = 200) -> None:
        self._begin(status, kind)
        self.wfile.write(first)
        taken = len(first)
        try:
            while taken < end:
                self.wfile.write(piece)
                taken += len(piece)
        except OSError:
            self.server.taken.append(taken)

    def _begin(self, status: int, kind: str, packing: str | None = None) -> None:
        # (HTTP/1.0: what follows ends with the connection.)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if packing:
            self.send_header("Content-Encoding", packing)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def endless_server(*, is_listing_endless: bool = False) -> Iterator[Endless]:
    with Endless(is_listing_endless) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
