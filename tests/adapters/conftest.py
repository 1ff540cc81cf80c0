"""A model's endpoint that the test holds in its hand: what it answers, byte for byte, and what it sees."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

Doc = dict[str, Any]
PATIENCE = 30.0


class Wire:
    """The bytes of one API's streams; `path` is where requests go."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.path = {"openai": "/chat/completions", "anthropic": "/v1/messages"}[dialect]

    def stream(self, *texts: str, calls: tuple[Doc, ...] = (), ends: bool = True, stop: str = "") -> bytes:
        """A reply of these texts and calls; one that does not end lacks its reason and whatever follows it."""
        make = self._openai if self.dialect == "openai" else self._anthropic
        return b"".join(make(texts, calls, ends, stop))

    def _openai(self, texts: tuple[str, ...], calls: tuple[Doc, ...], ends: bool, stop: str) -> Iterator[bytes]:
        for text in texts:
            yield self._chunk({"content": text})
        # As the real service does, the pieces of parallel calls come one call after the other, by index.
        for index, call in enumerate(calls):
            name = {"name": call["name"], "arguments": ""}
            yield self._chunk(
                {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": name}]}
            )
            for piece in _halves(call["arguments"]):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        if ends:
            yield self._chunk({}, stop or ("tool_calls" if calls else "stop"))
            usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
            yield _data({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"

    def _chunk(self, delta: Doc, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _data({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})

    def _anthropic(self, texts: tuple[str, ...], calls: tuple[Doc, ...], ends: bool, stop: str) -> Iterator[bytes]:
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
        usage = {"input_tokens": 11, "output_tokens": 1}
        yield _event("message_start", {"message": message | {"stop_sequence": None, "usage": usage}})
        index = 0
        if texts:
            yield _event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
            for text in texts:
                yield _event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}})
            yield _event("content_block_stop", {"index": 0})
            index = 1
        for number, call in enumerate(calls, start=index):
            block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
            yield _event("content_block_start", {"index": number, "content_block": block})
            for piece in _halves(call["arguments"]):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield _event("content_block_delta", {"index": number, "delta": delta})
            yield _event("content_block_stop", {"index": number})
        if ends:
            words = {"length": "max_tokens", "content_filter": "refusal"}
            reason = words.get(stop, "tool_use" if calls else "end_turn")
            delta = {"stop_reason": reason, "stop_sequence": None}
            yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": 7}})
            yield _event("message_stop", {})

    def error(self, kind: str, message: str) -> bytes:
        """An error in the middle of a stream."""
        body = {"error": {"type": kind, "message": message}}
        return _data(body) if self.dialect == "openai" else _event("error", body)


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _data(document: Doc) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _event(kind: str, document: Doc) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _data({"type": kind} | document)


class Endpoint:
    """A server that gives the answers of `will` in turn. `requests` are bodies, `headers` what came with them.

    `sent` is set when an answer is under way, `gone` when a client has closed a connection on which more was to come.
    """

    def __init__(self) -> None:
        self.requests: list[Doc] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.sent = threading.Event()
        self.gone = threading.Event()
        self._answers: list[tuple[bytes, bytes, bool]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def will(self, body: bytes, *, status: str = "200 OK", headers: str = "", stays: bool = False) -> None:
        """The next answer. One that `stays` leaves its connection open, without an end, until the client goes."""
        kind = "text/event-stream" if status.startswith("200") else "application/json"
        kinds = "" if "Content-Type" in headers else f"Content-Type: {kind}\r\n"
        head = f"HTTP/1.1 {status}\r\n{kinds}Connection: close\r\n{headers}\r\n"
        self._answers.append((head.encode(), body, stays))

    def will_fail(self, status: int, message: str, headers: str = "") -> None:
        """The next answer is an error."""
        body = json.dumps({"error": {"message": message, "type": "some_error"}}).encode()
        self.will(body, status=f"{status} Failed", headers=headers)

    def will_drop(self) -> None:
        """The next connection is closed without an answer."""
        self._answers.append((b"", b"", False))

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or the thread in accept(2) would go on listening
        self._listening.close()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            self.paths.append(stream.readline().split()[1].decode())
            headers = {}
            while line := stream.readline().strip():
                name, _, value = line.decode().partition(": ")
                headers[name.lower()] = value
            self.headers.append(headers)
            self.requests.append(json.loads(stream.read(int(headers["content-length"]))))
            head, body, stays = self._answers.pop(0)
            try:
                connection.sendall(head + body)
                self.sent.set()
                if stays and not stream.read(1):
                    self.gone.set()
            except OSError:  # the client has closed it before all of the answer was read
                self.gone.set()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def other() -> Iterator[Endpoint]:
    """A server that nobody configured."""
    other = Endpoint()
    yield other
    other.close()


@pytest.fixture(params=["openai", "anthropic"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Every test that has it is run for each API."""
    pytest.importorskip(request.param, reason=f"the extra {request.param!r} is not installed")
    return Wire(request.param)
