"""The embedded model: a real one, served by a process of ours that is gone when nobody needs it.

It is a small model on a machine that may be busy: what it says is not tested, only that it is said, stopped,
counted, and that its actions are ones that exist.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.models import weights
from agentrun.adapters.registry import build_agent
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import Agent
from agentrun.config import load_config
from agentrun.config.installing import how_to_install
from agentrun.errors import ConfigError
from agentrun.states import EventType as E
from agentrun.states import OperationStatus, RunStatus
from agentrun.testing.stretch import FakeStretch

needs_model = [
    pytest.mark.slow,
    pytest.mark.local,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not weights.is_installed(), reason="the embedded model is not installed: make setup-all"),
]
PATIENCE = 300.0


def real(function: Any) -> Any:
    for mark in needs_model:
        function = mark(function)
    return function


def agent(directory: Path, keys: str = "", tools: str = "", model: str = "local") -> Agent:
    (directory / "agentrun.toml").write_text(f'[agents.a]\nmodel = "{model}"\n{keys}\n{tools}')
    config = load_config(str(directory / "agentrun.toml"))
    here = str(directory)
    surroundings = Surroundings(here, None, "ann", "session-1", "run-1", here, here, dict(os.environ))
    return build_agent(config, config.agent(None), surroundings)


def servers(pid: int | None = None) -> list[str]:
    """The servers that this process, or the process `pid`, has started and that are alive."""
    mark = f"AGENTRUN_EMBEDDED_MODEL={pid or os.getpid()}-".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


@real
def test_it_streams_a_report_and_its_server_is_gone_after_it(tmp_path: Path) -> None:
    """# covers A40: the process lives as long as the stretch, the disk knows nothing of it."""
    stretch = FakeStretch("Count from one to five.")
    assert anyio.run(stretch.drive, agent(tmp_path)) is RunStatus.COMPLETED
    assert (stretch.report or "").strip()
    finished = next(event for event in stretch.events if event.type == E.MODEL_REQUEST_FINISHED)
    usage = finished.payload["usage"]
    assert usage["inputTokens"] > 0
    assert usage["outputTokens"] > 1
    assert servers() == []


@real
def test_a_stop_ends_the_request_and_the_server(tmp_path: Path) -> None:
    """# covers A45 A46 B27"""
    stretch = FakeStretch("Tell me a very long story.")

    async def stopped() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(stretch.drive, agent(tmp_path))
            with anyio.fail_after(PATIENCE):
                while not stretch.drafts:  # noqa: ASYNC110 - the stretch has no event for a draft
                    await anyio.sleep(0.02)
            assert len(servers()) == 1
            stretch.cancel()

    anyio.run(stopped)
    assert stretch.run.status is RunStatus.CANCELLED
    assert [each.status for each in stretch.operations] == [OperationStatus.CANCELLED]
    assert servers() == []


@real
def test_its_actions_are_ones_that_exist(tmp_path: Path) -> None:
    """# covers A4 A36: even a model of this size drives a real tool, since it can write nothing else."""
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    tools = """
[tools.count_lines]
argv = ["sh", "-c", "cat > arguments.json; wc -l < notes.txt"]
description = "Count the lines of a file."
parameters = { type = "object", properties = { file = { type = "string" } }, required = ["file"] }
effect = "read"
"""
    stretch = FakeStretch("How many lines has the file notes.txt?")
    driven = agent(tmp_path, 'tools = ["count_lines"]\nmax_turns = 3\nmax_output_tokens = 120', tools)
    assert anyio.run(stretch.drive, driven) in (RunStatus.COMPLETED, RunStatus.FAILED)
    calls = [each for each in stretch.operations if each.kind == "tool"]
    assert calls
    assert all(call.name == "count_lines" for call in calls)
    assert all(call.status is OperationStatus.SUCCEEDED for call in calls), "arguments that the tool takes"
    assert "file" in (tmp_path / "arguments.json").read_text()


@real
def test_a_server_that_cannot_serve_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    stretch = FakeStretch("hello")
    assert anyio.run(stretch.drive, agent(tmp_path, model="local:broken.gguf")) is RunStatus.FAILED
    assert "the server of the embedded model ended" in (stretch.run.reason or "")
    assert servers() == []


@real
def test_it_dies_with_its_executor_however_that_dies(tmp_path: Path) -> None:
    """The server is started by a process that is killed before it could end anything."""
    script = (
        "import anyio, os, sys\n"
        "from agentrun.adapters.models.embedded import EmbeddedServer\n"
        "from agentrun.adapters.models.weights import model_file\n"
        "async def main():\n"
        "    server = EmbeddedServer(model_file('', '.'), dict(os.environ))\n"
        "    async with server.opened():\n"
        "        await server.address()\n"
        "        print('serving', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "serving\n"
        assert len(servers(user.pid)) == 1
        os.kill(user.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while servers(user.pid):
        assert time.monotonic() < deadline, "the server is an orphan"
        time.sleep(0.02)


def test_without_it_the_lines_to_type_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    assert not weights.is_installed()
    with pytest.raises(ConfigError) as refused:
        agent(tmp_path)
    assert refused.value.hint == how_to_install("local")


def test_a_model_file_that_is_not_there(tmp_path: Path) -> None:
    if not weights.is_installed():
        pytest.skip("the embedded model is not installed: make setup-all")
    with pytest.raises(ConfigError, match=r"there is no model file .*nosuch\.gguf"):
        weights.model_file("nosuch.gguf", str(tmp_path))
