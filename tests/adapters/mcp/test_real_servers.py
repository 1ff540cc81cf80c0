"""Servers that others have written, from npm and PyPI, driven by an agent of ours."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.agents.equipped import EquippedAgent
from agentrun.adapters.mcp.server import McpServer
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits
from agentrun.config import McpConfig
from agentrun.records.operation import Operation
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import scripted
from agentrun.testing.node import node_program
from agentrun.testing.stretch import FakeStretch

pytest.importorskip("mcp", reason="needs the extra mcp")
pytestmark = pytest.mark.slow

S = OperationStatus


def call(
    directory: Path, name: str, arguments: dict[str, Any], stretch: FakeStretch | None = None, **config: Any
) -> Operation:
    """Has a model call one tool of the server `s`."""
    here = str(directory)
    surroundings = Surroundings(
        here, None, "ann", "session-test", "run-1", here, here, {"PATH": os.environ["PATH"], "HOME": here}
    )
    server = McpServer(McpConfig("s", **config), surroundings, directory=str(directory), secrets=())
    model = scripted({"calls": [{"name": f"s_{name}", "arguments": arguments}]}, {"text": "done"})
    stretch = stretch or FakeStretch()
    anyio.run(stretch.drive, EquippedAgent(lambda tools: LoopAgent(model, tools, Limits(), ""), (), [server]))
    (operation,) = [each for each in stretch.operations if each.kind == "tool"]
    return operation


@contextmanager
def everything_over_http(program: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server of everything, listening."""
    env = os.environ | {"PORT": str(port)}
    with subprocess.Popen([program, "streamableHttp"], env=env, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr
            for line in server.stderr:
                if b"listening" in line:
                    break
            yield server
        finally:
            server.kill()


def of_python(module: str) -> dict[str, Any]:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the Python package {module}")
    return {"command": sys.executable, "args": ("-m", module)}


def test_files_from_npm(tmp_path: Path) -> None:
    program = node_program("mcp-server-filesystem", "@modelcontextprotocol/server-filesystem")
    (tmp_path / "a.txt").write_text("twelve lamps")
    config = {"command": program, "args": (str(tmp_path),), "approve": "auto"}
    read = call(tmp_path, "read_text_file", {"path": str(tmp_path / "a.txt")}, **config)
    assert (read.status, read.effect, read.result) == (S.SUCCEEDED, "read", "twelve lamps")
    arguments = {"path": str(tmp_path / "b.txt"), "content": "new"}
    written = call(tmp_path, "write_file", arguments, **config)
    assert (written.status, written.effect) == (S.SUCCEEDED, "write")
    assert (tmp_path / "b.txt").read_text() == "new"
    outside = call(tmp_path, "read_text_file", {"path": "/etc/passwd"}, **config)
    assert (outside.status, outside.may_have_effects) == (S.FAILED, False)


def test_everything_from_npm(tmp_path: Path) -> None:
    program = node_program("mcp-server-everything", "@modelcontextprotocol/server-everything")
    config = {"command": program, "args": ("stdio",), "approve": "auto"}
    stretch = FakeStretch()
    long = {"duration": 0.4, "steps": 2}
    assert call(tmp_path, "trigger-long-running-operation", long, stretch, **config).status is S.SUCCEEDED
    assert EventType.TOOL_PROGRESS in stretch.types()
    picture = call(tmp_path, "get-tiny-image", {}, **config)
    assert "[image/png, " in str(picture.result)
    slow = call(tmp_path, "trigger-long-running-operation", {"duration": 60, "steps": 60}, timeout=0.5, **config)
    assert slow.status is S.TIMED_OUT


def test_everything_over_http(tmp_path: Path, unused_port: int) -> None:
    program = node_program("mcp-server-everything", "@modelcontextprotocol/server-everything")
    with everything_over_http(program, unused_port):
        url = f"http://127.0.0.1:{unused_port}/mcp"
        echo = call(tmp_path, "echo", {"message": "hello"}, url=url, approve="auto")
    assert (echo.status, echo.result) == (S.SUCCEEDED, "Echo: hello")


def test_a_server_that_nobody_listens_for_fails_the_run(tmp_path: Path, unused_port: int) -> None:
    stretch = FakeStretch()
    with pytest.raises(ValueError, match="not enough values"):
        call(tmp_path, "echo", {}, stretch, url=f"http://127.0.0.1:{unused_port}/mcp")
    assert "the MCP server 's' cannot be used: ConnectError" in str(stretch.run.reason)


def test_a_server_over_http_that_goes_away_fails_the_call(tmp_path: Path, unused_port: int) -> None:
    program = node_program("mcp-server-everything", "@modelcontextprotocol/server-everything")
    with everything_over_http(program, unused_port) as server:
        stretch = FakeStretch()
        stretch.at(EventType.TOOL_STARTED, lambda _: server.kill())
        url = f"http://127.0.0.1:{unused_port}/mcp"
        operation = call(tmp_path, "echo", {"message": "hello"}, stretch, url=url, approve="auto", effect="write")
    assert stretch.run.status is RunStatus.COMPLETED
    assert operation.status is S.FAILED
    assert operation.may_have_effects


def test_time_from_pypi(tmp_path: Path) -> None:
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    converted = call(tmp_path, "convert_time", arguments, **of_python("mcp_server_time"), effect="read")
    assert converted.status is S.SUCCEEDED
    assert "21:00" in str(converted.result)


def test_git_from_pypi(tmp_path: Path) -> None:
    config = of_python("mcp_server_git")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(repository)], check=True)
    status = call(tmp_path, "git_status", {"repo_path": str(repository)}, **config, effect="read")
    assert status.status is S.SUCCEEDED
    assert "trunk" in str(status.result)
