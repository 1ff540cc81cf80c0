"""How much of an answer over HTTP is read: a server without end costs the memory of one message, and fails the call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.agents.equipped import EquippedAgent
from agentrun.adapters.mcp import server
from agentrun.adapters.mcp.answers import _SizeOfEvent
from agentrun.adapters.mcp.server import McpServer
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits
from agentrun.config import McpConfig
from agentrun.states import OperationStatus, RunStatus
from agentrun.testing.fakes import scripted
from agentrun.testing.stretch import FakeStretch

pytest.importorskip("mcp", reason="needs the extra mcp")

from endless_server import endless_server  # isort: skip

S = OperationStatus
# What the sockets of both sides may hold beside what was read.
BUFFERED = 32 << 20


def run(directory: Path, url: str, *names: str, **config: Any) -> FakeStretch:
    """Has a model call tools of the server `s`, one after the other."""
    here = str(directory)
    surroundings = Surroundings(here, None, "ann", "session-test", "run-1", here, here, {"PATH": os.environ["PATH"]})
    config = {"approve": "auto", "headers": {"Accept-Encoding": "gzip"}} | config
    made = McpServer(McpConfig("s", url=url, **config), surroundings, directory=str(directory), secrets=())
    model = scripted(*({"calls": [{"name": f"s_{name}", "arguments": {}}]} for name in names), {"text": "done"})
    stretch = FakeStretch()
    anyio.run(stretch.drive, EquippedAgent(lambda tools: LoopAgent(model, tools, Limits(), ""), (), [made]))
    return stretch


def test_an_answer_without_end_is_broken_off_and_fails_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of answer, and the connection goes on. # covers promise 16"""
    monkeypatch.setattr(server, "LINE_BYTES", 8 << 20)
    names = ("json", "event", "resumed", "refused", "packed", "whole")
    with endless_server() as endless:
        stretch = run(tmp_path, endless.url, *names)
    assert stretch.run.status is RunStatus.COMPLETED
    calls = dict(zip(names, (each for each in stretch.operations if each.kind == "tool"), strict=True))
    for name in ("json", "event", "resumed"):
        call = calls[name]
        assert (call.status, call.may_have_effects) == (S.FAILED, True)
        assert "the server said more than 8 MiB at once" in str(call.error)
    assert calls["refused"].status is S.FAILED
    assert "it is packed (gzip), though it was not asked for so" in str(calls["packed"].error)
    # More than the library takes of an event by itself.
    assert (calls["whole"].status, len(str(calls["whole"].result))) == (S.SUCCEEDED, 3 << 20)
    assert len(endless.taken) == 4
    assert max(endless.taken) < (8 << 20) + BUFFERED


def test_before_its_tools_are_known_a_server_is_not_read_that_far(tmp_path: Path) -> None:
    """As over stdio. # covers promise 16"""
    with endless_server(is_listing_endless=True) as endless:
        stretch = run(tmp_path, endless.url)
    said = "the MCP server 's' cannot be used: it said more than 4 MiB at once, before its tools were known"
    assert stretch.run.reason == said
    assert max(endless.taken) < BUFFERED


def test_many_events_are_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told for as long as a call takes: none of it is kept."""
    monkeypatch.setattr(server, "LINE_BYTES", 1 << 16)
    with endless_server() as endless:
        (call,) = [each for each in run(tmp_path, endless.url, "events").operations if each.kind == "tool"]
    assert (call.status, call.result) == (S.SUCCEEDED, "over")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n"])
def test_an_event_ends_with_an_empty_line_wherever_the_chunks_end(end: bytes) -> None:
    text = b"data: 12" + end + b"data: 345"
    # The second half of a line's end may count as of the next event.
    right = (len(b"data: 345"), len(b"\ndata: 345"))
    for cut in range(len(text) + 1):
        size = _SizeOfEvent()
        size.after(text[:cut])
        assert size.after(text[cut:]) in right
    by_bytes = _SizeOfEvent()
    assert [by_bytes.after(bytes([each])) for each in text][-1] in right
