"""Runs against a server that speaks the providers' own APIs (aimock, from npm): not written by us, as they are not."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import provider
import pytest

Doc = dict[str, Any]

# Where `make setup-all` puts it: beside the interpreter that runs the tests.
AIMOCK = Path(sys.prefix) / "node" / "node_modules" / ".bin" / "llmock"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.node,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        shutil.which("node") is None or not AIMOCK.exists(), reason="Node or aimock is missing: make setup-all"
    ),
]
PATIENCE = provider.PATIENCE
USAGE = {
    "openai": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    "anthropic": {"input_tokens": 11, "output_tokens": 7},
}
KEY = "sk-test-0123456789-secret"


class Mock:
    """The server. `answers` are its fixtures, the first that matches is taken."""

    def __init__(self, directory: Path, answers: list[Doc]) -> None:
        fixtures = directory / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": answers}))
        self.process, self.port = provider.start([str(AIMOCK), "-f", str(fixtures), "--strict", "--log-level", "warn"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Mock]]:
    mocks: list[Mock] = []

    def make(*answers: Doc) -> Mock:
        mocks.append(Mock(tmp_path, list(answers)))
        return mocks[-1]

    yield make
    for mock in mocks:
        mock.close()


class Configure:
    """Configures an agent of `provider` whose model is a mock, and makes a session for it."""

    def __init__(self, home: Any, provider: str) -> None:
        self.home = home
        self.provider = provider

    def __call__(self, mock: Mock) -> str:
        version = "/v1" if self.provider == "openai" else ""
        self.home.env["THE_KEY"] = KEY
        self.home.config.write_text(
            f"""
[agents.real]
model = "{self.provider}:gpt-test"
base_url = "http://127.0.0.1:{mock.port}{version}"
api_key_env = "THE_KEY"
tools = ["query"]

[tools.query]
argv = ["sh", "-c", "cat; echo key=$THE_KEY"]
effect = "read"
parameters = {{ type = "object", properties = {{ sql = {{ type = "string" }} }} }}
"""
        )
        return str(self.home.new())


@pytest.fixture(params=["openai", "anthropic"])
def agent(request: pytest.FixtureRequest, home: Any) -> Configure:
    """Each test runs for both."""
    pytest.importorskip(request.param, reason=f"the extra {request.param!r} is not installed")
    return Configure(home, request.param)


def words(text: str) -> list[str]:
    return text.split()


def test_tools_are_called_side_by_side_and_the_report_comes(
    home: Any, serve: Callable[..., Mock], agent: Configure
) -> None:
    """# covers A4 A33 A36 A49: with the provider's own stream of calls in pieces."""
    calls = [{"name": "query", "arguments": {"sql": f"select {n}"}} for n in (1, 2)]
    report = {"content": "# Figures\n\nBoth queries gave a result.\n", "usage": USAGE[agent.provider]}
    session = agent(
        serve(
            {"match": {"hasToolResult": True}, "response": report},
            {"match": {"userMessage": "figures"}, "response": {"toolCalls": calls, "usage": USAGE[agent.provider]}},
        )
    )
    sent = home.run("send", session, "the figures, please", patience=PATIENCE)
    assert sent.code == 0, sent.said
    assert words(sent.text) == words("# Figures Both queries gave a result.")
    finished = home.events(f"{session}/run-1", "tool.finished")
    assert [event["payload"]["status"] for event in finished] == ["succeeded"] * 2
    results = sorted(event["payload"]["result"] for event in finished)
    assert results == ['{"sql":"select 1"}\nkey=\n', '{"sql":"select 2"}\nkey=\n'], "a tool must not inherit the key"
    usage = home.view(f"{session}/run-1")["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["costUsd"]) == (22, 14, None)


TROUBLES = {
    "busy": {"response": {"error": {"message": "busy", "type": "server_error"}, "status": 503}},
    "too many": {"response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}},
    "cut off": {"response": {"content": "half of the report " * 20}, "truncateAfterChunks": 3},
}


@pytest.mark.parametrize("trouble", list(TROUBLES))
def test_what_passes_is_tried_again_in_the_same_run(
    home: Any, serve: Callable[..., Mock], agent: Configure, trouble: str
) -> None:
    """# covers A9 A37 A57: an attempt that failed is on the record, and nothing of it in the report."""
    session = agent(
        serve(
            {"match": {"userMessage": "figures", "sequenceIndex": 0}, **TROUBLES[trouble]},
            {"match": {"userMessage": "figures"}, "response": {"content": "All of it."}},
        )
    )
    sent = home.run("send", session, "figures", patience=PATIENCE)
    assert sent.code == 0, sent.said
    assert sent.text.strip() == "All of it."
    statuses = [event["payload"]["status"] for event in home.events(f"{session}/run-1", "model.request.finished")]
    assert statuses == ["failed", "succeeded"]
    assert home.view(f"{session}/run-1")["usage"]["retries"] == 1


def test_what_does_not_pass_ends_the_run_with_its_reason(
    home: Any, serve: Callable[..., Mock], agent: Configure
) -> None:
    """# covers A54; promise 15: the key is not in the tree although the server repeats it."""
    refused = {"error": {"message": f"your key {KEY} is not accepted", "type": "authentication_error"}, "status": 401}
    session = agent(serve({"match": {"userMessage": "figures"}, "response": refused}))
    sent = home.run("send", session, "figures", patience=PATIENCE)
    assert sent.code == 1
    reason = home.view(f"{session}/run-1")["reason"]
    assert "HTTP 401: your key [redacted] is not accepted" in reason
    assert "check api_key_env" in reason
    for path in home.root.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    assert len(home.events(f"{session}/run-1", "model.request.started")) == 1


def test_an_endless_reply_is_seen_as_it_comes_and_stopped(
    home: Any, serve: Callable[..., Mock], agent: Configure, until: Callable[..., Any]
) -> None:
    """# covers A41 A45 A46 A57 B27"""
    endless = {"response": {"content": "word " * 5000}, "latency": 50, "chunkSize": 10}
    session = agent(serve({"match": {"userMessage": "figures"}, **endless}))
    run = home.detach(session, "figures")
    draft = home.run_dir(run) / "report.draft.md"
    until(lambda: draft.exists() and draft.read_text().count("word") > 5, "the draft", PATIENCE)
    screen = home.terminal("show", "-f", run)
    screen.wait_for("word word")
    assert home.run("cancel", run, "--wait", patience=PATIENCE).code == 0
    assert home.status(run) == "cancelled"
    finished = home.events(run, "model.request.finished")[-1]["payload"]
    assert (finished["status"], finished["usage"]) == ("cancelled", None)
    assert not (home.run_dir(run) / "report.md").exists()
