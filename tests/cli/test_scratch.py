"""A run's scratch is the tools' own: whatever they make of it keeps nobody from going on with the run, or ending it.

# covers A66, promises 2, 6 and 14
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.cli.conftest import until

Home = Any

pytestmark = pytest.mark.slow

WAITING, DONE = 5, 0
WAYS = {
    "a link": 'rm -rf "$AGENTRUN_SCRATCH"; ln -s "{elsewhere}" "$AGENTRUN_SCRATCH"',
    "a file": 'rm -rf "$AGENTRUN_SCRATCH"; echo mine > "$AGENTRUN_SCRATCH"',
    "closed": 'chmod 0 "$AGENTRUN_SCRATCH"',
    "gone": 'rm -rf "$AGENTRUN_SCRATCH"',
}


@pytest.fixture(params=WAYS)
def session(home: Home, request: pytest.FixtureRequest) -> str:
    """A session with a run that waits for the user, whose tool has done something to its scratch."""
    elsewhere = home.path / "bigger disk"
    elsewhere.mkdir()
    (elsewhere / "theirs").touch()
    file = home.path / "notes.md"
    file.write_text("notes")
    home.tool("mess", WAYS[request.param].format(elsewhere=elsewhere))
    home.tool("hold", home.gate(), retries=3)
    home.model({"calls": [{"name": "mess"}]}, {"ask": "go on?"}, {"calls": [{"name": "hold"}]}, {"text": "done"})
    session = str(home.new())
    assert home.run("send", session, "x", "--attach", str(file)).code == WAITING
    return session


def test_the_run_goes_on(home: Home, session: str) -> None:
    home.open_gate()
    sent = home.run("send", session, "yes")
    assert sent.code == DONE, sent.said
    assert home.status(session) == "completed"
    assert [each.name for each in (home.path / "bigger disk").iterdir()] == ["theirs"]
    assert home.run("rm", session, "--yes").code == DONE
    assert [each.name for each in (home.path / "bigger disk").iterdir()] == ["theirs"]


@pytest.mark.parametrize("session", ["a link"], indirect=True)
def test_it_is_taken_up_and_ended_by_others(home: Home, session: str) -> None:
    run = home.detach(session, "yes")
    home.at_gate()
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor being gone")
    assert home.run("recover").code == DONE
    home.at_gate(2)
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the next executor being gone")
    assert home.run("cancel", run, "--wait").code == DONE
    assert home.status(run) == "cancelled"
