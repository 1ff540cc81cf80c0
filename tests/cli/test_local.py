"""The model on this machine from the command line: real processes, a real model, no key and no network."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.adapters.models import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.local,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not weights.is_installed(), reason="the embedded model is not installed: make setup-all"),
]
# A machine that is busy with other things may take minutes over a few sentences.
PATIENCE = 400.0
UNCONFIGURED = {"AGENTRUN_CONFIG": ""}


def servers_of(pid: int) -> list[int]:
    """The model servers that the executor `pid` has started and that are alive."""
    mark, found = f"AGENTRUN_EMBEDDED_MODEL={pid}-".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_without_any_configuration_send_talks_to_it(home: Any) -> None:
    """# covers A3 A4: the report streams, is counted and is kept as any other."""
    session = home.new()
    sent = home.run("send", session, "Say hello in five words.", env=UNCONFIGURED, patience=PATIENCE)
    assert sent.code == 0, sent.said
    assert sent.text.strip()
    run = home.view(f"{session}/run-1")
    assert run["agent"] == "local"
    assert run["usage"]["outputTokens"] > 0
    assert run["usage"]["costUsd"] is None
    assert servers_of(home.executor(f"{session}/run-1")) == []


def test_a_check_starts_it_and_asks(home: Any) -> None:
    checked = home.run("agents", "check", "local", env=UNCONFIGURED, patience=PATIENCE)
    assert checked.code == 0, checked.text
    assert "model local: answered in" in checked.text


def test_a_cancel_from_another_process_stops_it(home: Any, until: Callable[..., Any]) -> None:
    """# covers A45 A46 promise 6"""
    session = home.new("--agent", "local")
    sent = home.run("send", session, "Tell me a very long story.", "--detach", env=UNCONFIGURED)
    run = sent.text.strip()
    draft = home.run_dir(run) / "report.draft.md"
    until(lambda: draft.exists() and draft.stat().st_size > 0, "the draft", PATIENCE)
    executor = home.executor(run)
    assert len(servers_of(executor)) == 1
    assert home.run("cancel", run, "--wait", patience=PATIENCE).code == 0
    assert servers_of(executor) == []
    assert home.status(run) == "cancelled"


def test_nothing_is_left_of_it_when_its_executor_is_killed(home: Any, until: Callable[..., Any]) -> None:
    session = home.new("--agent", "local")
    run = home.run("send", session, "Tell me a very long story.", "--detach", env=UNCONFIGURED).text.strip()
    executor = home.executor(run)
    until(lambda: servers_of(executor), "the server", PATIENCE)
    os.kill(executor, signal.SIGKILL)
    until(lambda: not servers_of(executor), "the end of the server", PATIENCE)
