"""What cannot be ended: it is named everywhere, and keeps the run in `cancelling` until it is gone.

The executor and the commands may send no signal to another user's processes, and its tool becomes one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE

Home = Any
Until = Callable[..., Any]

# Of Linux: root may signal processes of other users for this capability alone (capabilities(7)).
WITHOUT_KILL = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")


def _why_not() -> str | None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "it takes root, and setpriv"
    tried = subprocess.run([*WITHOUT_KILL, "true"], capture_output=True, check=False)
    return f"no capability can be given up here: {tried.stderr.decode()}" if tried.returncode else None


WHY_NOT = _why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


@pytest.fixture
def powerless(home: Home) -> Callable[..., Any]:
    """Runs a command that may not signal the processes of others."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [*WITHOUT_KILL, *home.argv(*words)]
        return subprocess.run(argv, env=home.env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    return run


def test_what_cannot_be_ended_is_named_by_the_executor_and_by_each_cancel_until_it_is_gone(
    home: Home, until: Until, powerless: Callable[..., Any]
) -> None:
    # covers A43 A51 A52
    become = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    home.settings(top='grace = "50ms"\nkill_timeout = "100ms"')
    home.tool("work", f"{become} sleep 600 & echo $! > pid; echo > ready; wait")
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    session = home.new()
    sent = powerless("send", session, "x", "--detach")
    assert sent.returncode == 0, sent.stderr
    run = sent.stdout.strip()
    until((home.path / "ready").exists)
    pid = int((home.path / "pid").read_text())
    # Until it has become another user's, it can be ended like any other.
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00", "it being another user's")
    try:
        assert powerless("cancel", run).returncode == 6
        home.wait_for_event(run, "run.survivors_found")
        until(lambda: home.view(run)["executor"] == "lost", "the executor giving up")
        name = f"sleep 600 (pid {pid})"
        (found,) = home.events(run, "run.survivors_found")
        assert found["payload"]["survivors"] == [name]
        stored = json.loads((home.run_dir(run) / "run.json").read_bytes())
        assert (stored["status"], stored["survivors"]) == ("cancelling", [name])
        assert name in home.run("show", run).text
        again = powerless("cancel", run, "--wait")
        assert again.returncode == 6, again.stderr
        assert again.stdout == f"{run} cancelling\n"
        assert name in again.stderr
        told = json.loads(powerless("cancel", run, "--json").stdout)
        assert (told["status"], told["survivors"]) == ("cancelling", [name])
        assert len(home.events(run, "run.survivors_found")) == 1, "what is known is not said again"
        assert home.events(run, "run.finished") == []
    finally:
        os.kill(pid, signal.SIGKILL)
    assert home.run("cancel", run, "--wait").code == 0
    view = home.view(run)
    assert (view["status"], view["survivors"]) == ("cancelled", [])
    assert home.marked() == []


def test_a_run_does_not_go_on_as_long_as_a_tool_of_it_cannot_be_ended(
    home: Home, until: Until, powerless: Callable[..., Any]
) -> None:
    # covers A60 A61
    become = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    home.settings(top='grace = "50ms"\nkill_timeout = "100ms"')
    denial = ["/bin/sh", "-c", 'echo \'{"status": "failed"}\'']
    script = f"[ ! -e ready ] || exit 0; {become} sleep 600 & echo $! > pid; echo > ready; wait"
    home.tool("work", script, effect="write", approve="auto", probe=denial)
    home.model({"calls": [{"name": "work"}]}, {"text": "done"})
    run = powerless("send", home.new(), "x", "--detach").stdout.strip()
    until((home.path / "ready").exists)
    pid = int((home.path / "pid").read_text())
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00", "it being another user's")
    try:
        os.kill(home.executor(run), signal.SIGKILL)
        until(lambda: home.view(run)["executor"] == "lost", "its lock being free")
        for _ in range(2):
            recovered = powerless("recover", "--json")
            assert recovered.returncode == 6, recovered.stdout
            assert json.loads(recovered.stdout)["reason"] == f"sleep 600 (pid {pid}) cannot be ended"
            assert [each["status"] for each in home.view(run)["openOperations"]] == ["running"]
    finally:
        os.kill(pid, signal.SIGKILL)
    assert home.run("recover").code == 0
    home.wait_for_status(run, "completed")
    (settled,) = home.events(run, "operation.reconciled")
    assert settled["payload"]["status"] == "failed", "what its probe says counts by now"
