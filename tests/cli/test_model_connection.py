"""A stop closes the model's connection, and the server sees it: the whole command line, a server in the test's hand.

# covers A43 A45 A46 B27 B59
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
pytest.importorskip("openai", reason="the extra 'openai' is not installed")
PATIENCE = 60.0


class Server:
    """Streams the beginning of a reply on each connection and never ends it; `gone` once a client has closed one."""

    def __init__(self) -> None:
        self.streaming, self.gone = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or the thread in accept(2) would go on listening
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                length = 0
                while line := stream.readline().strip():
                    name, _, value = line.partition(b": ")
                    length = int(value) if name.lower() == b"content-length" else length
                stream.read(length)
                delta = {"index": 0, "delta": {"content": "half a reply "}, "finish_reason": None}
                chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
                head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.streaming.set()
                with suppress(ConnectionError):
                    stream.read(1)
                self.gone.set()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("who", ["cancel", "cancel --op", "SIGTERM"])
def test_the_server_sees_the_connection_close(home: Home, server: Server, until: Until, who: str) -> None:
    home.env["THE_KEY"] = "sk-test"
    home.config.write_text(
        f'[agents.a]\nmodel = "openai:m"\nbase_url = "{server.url}"\napi_key_env = "THE_KEY"\n', encoding="utf-8"
    )
    session = home.new()
    sending = home.start("send", session, "x")
    assert server.streaming.wait(PATIENCE)
    draft = home.run_dir(session) / "report.draft.md"
    until(lambda: draft.exists() and "half a reply" in draft.read_text("utf-8"), "the draft")
    assert not server.gone.is_set()
    match who:
        case "cancel":
            home.ask_to_stop(session)
        case "cancel --op":
            assert home.run("cancel", session, "--op", "op-1").code in (0, 6)
        case _:
            os.kill(sending.pid, signal.SIGTERM)
    assert server.gone.wait(PATIENCE)
    (finished, *_) = home.wait_for_event(session, "model.request.finished")
    assert finished["payload"]["status"] == "cancelled"
    if who == "cancel --op":
        home.ask_to_stop(session)
    assert sending.end(PATIENCE).code == (143 if who == "SIGTERM" else 3)
    assert home.status(session) == "cancelled"
    assert not (home.run_dir(session) / "report.md").exists()
    assert "half a reply" in draft.read_text("utf-8")
