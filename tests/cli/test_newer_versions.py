"""What a newer version of agentrun has written is left alone; a run that spends money can be stopped all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow

NEWER = b'{"formatVersion": 2, "chapters": ["They have talked about it."]}'


@pytest.fixture
def run(home: Home, until: Callable[..., Any]) -> str:
    """A detached run in a tool that waits: its executor writes nothing now."""
    ready = home.path / "ready"
    home.tool("wait", f"touch {ready}; {home.gate()}")
    home.model({"calls": [{"name": "wait"}]}, {"text": "done"})
    run = str(home.detach(home.new(), "first"))
    until(ready.exists, "the tool being there")
    return run


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_a_newer_summary_keeps_nobody_from_stopping_a_run(
    home: Home, run: str, until: Callable[..., Any], is_killed: bool
) -> None:
    """# covers A43 A46 B26"""
    session = run.partition("/")[0]
    summary = home.session_dir(session) / "summary.json"
    summary.write_bytes(NEWER)
    summary.chmod(0o600)
    for words in (["steer", run, "not that way"], ["send", session, "next", "--if-busy", "queue"]):
        refused = home.run(*words)
        assert (refused.code, "install a newer agentrun" in refused.said) == (9, True)
    if is_killed:
        os.kill(home.executor(run), signal.SIGKILL)
        until(lambda: home.view(run)["executor"] == "lost", "the executor being gone")
    assert home.run("cancel", run, "--wait", "--reason", "enough").code == 0
    assert home.status(run) == "cancelled"
    assert home.marked(session) == []
    assert len(home.events(run, "run.cancel_requested")) == 1
    assert summary.read_bytes() == NEWER
    assert home.run("send", session, "next").code == 9


@pytest.mark.parametrize("name", ["session.json", "run.json"])
def test_of_a_newer_run_the_way_that_all_versions_know_is_named(
    home: Home, run: str, until: Callable[..., Any], name: str
) -> None:
    path = next(home.session_dir(run.partition("/")[0]).rglob(name))
    whole = path.read_bytes()
    path.write_text(json.dumps(json.loads(whole) | {"formatVersion": 2}))
    refused = home.run("cancel", run)
    assert refused.code == 9
    assert f"touch {home.run_dir(run)}/cancel" in refused.said
    assert not (home.run_dir(run) / "cancel").exists()
    path.write_bytes(whole)
    assert home.run("cancel", run, "--wait").code == 0
    # Without an executor, which goes away now, nobody would look at the file.
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"formatVersion": 2}))
    until(lambda: "touch" not in home.run("cancel", run).said, "its executor being gone")
