"""Tools of MCP servers on the command line: approved, kept, cancelled, and gone with their run."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")
pytestmark = pytest.mark.slow

SMALL = Path(__file__).parent.parent / "adapters" / "mcp" / "small_server.py"


def configure(home: Any, *turns: Any, more: str = "") -> None:
    (home.path / "script.json").write_text(json.dumps({"turns": turns}))
    home.config.write_text(
        f'[agents.a]\nmodel = "scripted:script.json"\ntools = ["mcp:small"]\n[mcp.small]\n'
        f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SMALL))}]\n"
        f"env = {{ HEARD = {json.dumps(str(home.path / 'heard'))} }}\n{more}"
    )


def test_a_write_of_a_server_is_asked_about_and_made_by_the_next_stretch(home: Any, until: Callable[..., Any]) -> None:
    # covers A46
    configure(home, {"calls": [{"name": "small_write_it"}]}, {"text": "{{op:small_write_it}}"})
    session = home.new()
    assert home.run("send", session, "go").code == 5
    assert home.marked(session) == []
    assert home.run("approve", session).code == 0
    home.wait_for_status(f"{session}/run-1", "completed")
    until(lambda: home.marked(session) == [])


def test_a_picture_is_kept_whole_and_the_model_is_told_what_it_is(home: Any) -> None:
    configure(home, {"calls": [{"name": "small_picture"}]}, {"text": "{{op:small_picture}}"})
    session = home.new()
    sent = home.run("send", session, "go")
    (finished,) = home.events(f"{session}/run-1", "tool.finished")
    blob = finished["payload"]["blob"]
    content = (home.run_dir(f"{session}/run-1") / "blobs" / blob["sha256"]).read_bytes()
    assert content == b"\x89PNG\r\n\x1a\n"
    assert hashlib.sha256(content).hexdigest() == blob["sha256"]
    assert sent.text.startswith("[image/png, 8 bytes]\n[8 bytes, kept in blobs/")


def test_cancel_reaches_the_server_and_ends_it(home: Any, until: Callable[..., Any]) -> None:
    # covers A45 A46; case C7
    configure(home, {"calls": [{"name": "small_slow"}]})
    session = home.new()
    run = home.detach(session, "go")
    heard = home.path / "heard"
    until(lambda: heard.exists() and "tools/call" in heard.read_text())
    home.run("cancel", run)
    home.wait_for_status(run, "cancelled")
    assert home.marked(session) == []
    assert "notifications/cancelled" in heard.read_text()


def test_progress_is_shown(home: Any) -> None:
    configure(home, {"calls": [{"name": "small_progress"}]}, {"text": "done"})
    terminal = home.terminal("send", home.new(), "go")
    terminal.wait_for("op-2 3 of 10: counting")
    assert terminal.end() == 0


def test_an_agent_whose_server_cannot_be_started_fails_its_run(home: Any) -> None:
    configure(home, {"text": "done"})
    home.config.write_text(home.config.read_text().replace(str(SMALL), "nosuch.py"))
    sent = home.run("send", home.new(), "go")
    assert sent.code == 1
    assert "the MCP server 'small' cannot be used: the server has ended (exit 2)" in sent.said


# A server that sends what is no notification of the protocol before it answers a call.
RUDE = """
import json, sys
for asked in map(json.loads, sys.stdin):
    result = {}
    if asked["method"] == "initialize":
        about = {"name": "rude", "version": "1"}
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        wrong = {"level": "\\x1b]0;owned\\x07", "data": 1}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": wrong}))
        result = {"content": [{"type": "text", "text": "done"}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_what_a_library_says_of_a_server_s_nonsense_is_not_shown(home: Any) -> None:
    """Its warning is a traceback with what the server sent. # covers promise 15"""
    (home.path / "script.json").write_text(
        json.dumps({"turns": [{"calls": [{"name": "rude_t"}]}, {"text": "{{op:rude_t}}"}]})
    )
    home.config.write_text(
        f'[agents.a]\nmodel = "scripted:script.json"\ntools = ["mcp:rude"]\n[mcp.rude]\neffect = "read"\n'
        f'command = {json.dumps(sys.executable)}\nargs = ["-c", {json.dumps(RUDE)}]\n'
    )
    done = home.run("send", home.new(), "go")
    assert (done.code, done.text) == (0, "done\n")
    assert done.said.count("\n") == 1, done.said  # that it was accepted
