"""A real agent of others, which speaks ACP, offline: its model is a server that plays the provider's API (aimock)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import provider
import pytest

from agentrun.testing.node import node_program

pytest.importorskip("acp", reason="needs the extra acp")
pytestmark = [pytest.mark.slow, pytest.mark.node, pytest.mark.timeout(240)]

PATIENCE = provider.PATIENCE


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[list[dict[str, Any]]], int]]:
    """Starts the provider with its answers; the port that it listens on."""
    program = node_program("llmock", "@copilotkit/aimock")
    started: list[subprocess.Popen[bytes]] = []

    def start(answers: list[dict[str, Any]]) -> int:
        fixtures = tmp_path / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": answers}))
        process, port = provider.start([program, "-f", str(fixtures), "--log-level", "warn"])
        started.append(process)
        return port

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_a_real_agent_keeps_its_conversation_and_writes_once_it_may(
    home: Any, serve: Callable[[list[dict[str, Any]]], int], tmp_path: Path
) -> None:
    # covers A26 A40 A45
    program = node_program("claude-agent-acp", "@agentclientprotocol/claude-agent-acp")
    work = tmp_path / "work"
    work.mkdir()
    arguments = {"file_path": str(work / "a.txt"), "content": "twelve lamps"}
    write = {"toolCalls": [{"name": "Write", "arguments": arguments}]}
    port = serve(
        [
            {"match": {"hasToolResult": True}, "response": {"content": "I wrote the file."}},
            {"match": {"userMessage": "has allowed"}, "response": write},
            {"match": {"userMessage": "write it"}, "response": write},
            {"match": {}, "response": {"content": "All is well."}},
        ]
    )
    home.env |= {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_API_KEY": "sk-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    home.config.write_text(f'[agents.claude]\nkind = "acp"\ncommand = [{json.dumps(program)}]\n')
    session = home.run("new", cwd=work).text.strip()

    first = home.run("send", session, "hello", patience=PATIENCE)
    assert (first.code, first.text.strip()) == (0, "All is well."), first.said
    kept = json.loads((home.session_dir(session) / "session.json").read_bytes())["remoteIds"]
    assert list(kept) == ["acp:claude"]

    assert home.run("send", session, "write it, please", patience=PATIENCE).code == 5
    assert not (work / "a.txt").exists()
    assert home.marked(session) == []
    assert home.run("approve", session).code == 0
    assert home.run("wait", session, "--timeout", "110s", patience=PATIENCE).code == 0
    assert (work / "a.txt").read_text() == "twelve lamps"
    run = f"{session}/run-2"
    # Asked once, for the call that was then made by the agent that had been started again.
    assert len(home.events(run, "run.waiting_input")) == 1
    made = [each["payload"]["status"] for each in home.events(run, "tool.finished")]
    assert made == ["skipped", "succeeded"]
    again = json.loads((home.session_dir(session) / "session.json").read_bytes())["remoteIds"]
    assert again == kept
