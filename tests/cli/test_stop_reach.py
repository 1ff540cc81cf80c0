"""What `cancel --wait` = 0 promises: nothing of the run is left on this machine, whatever its tool is.

# covers A43 A46 A51 B28 B59
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow

# Each says that it is ready by making the file `$ready`, and would live for ever.
KINDS = {
    "ends when it is asked to": "touch $ready; sleep 600 & wait",
    "ignores SIGTERM": "trap '' TERM; touch $ready; while :; do sleep 0.05; done",
    "is stopped": "touch $ready; kill -STOP $$; sleep 600",
    "left its session": "setsid sleep 600 & setsid sh -c 'sleep 600 & wait' & touch $ready; wait",
    "forked twice": "(sleep 600 & sleep 600 &) ; (setsid sh -c '(sleep 600 &) &'); touch $ready; sleep 600",
    # case C7
    "has a loop and children in the background": (
        "sleep 600 & sleep 600 & touch $ready; while :; do touch $beat; sleep 0.05; done"
    ),
    # case C8: what it leaves holds its output open
    "left a daemon that holds its pipes": (
        "setsid sh -c 'while :; do echo x; sleep 0.05; done' & touch $ready; sleep 600"
    ),
    "forks as fast as it can": "",
}
BOMB = """
import os, sys, time
open(sys.argv[1], "w").close()
end = time.monotonic() + 30  # a bomb that is not found goes out by itself
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""


def test_a_tree_that_was_moved_finds_what_its_tools_left(home: Home, until: Until) -> None:
    """As with a tree that is mounted in a container: the tools know it by another path than whoever stops them."""
    ready = home.path / "ready"
    home.settings(top='grace = "100ms"')
    home.tool("work", f"touch {ready}; while :; do sleep 0.05; done")
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    run = home.detach(home.new(), "x")
    until(ready.exists, "the tool being ready")
    moved = home.path / "moved"
    os.kill(home.executor(run), signal.SIGKILL)
    home.root.rename(moved)
    cancelled = home.run("cancel", run, "--wait", "--root", str(moved))
    assert cancelled.code == 0, cancelled.said
    assert home.marked() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["cancel", "force"])
def test_nothing_is_left_of_a_tool_that(home: Home, until: Until, kind: str, how: str) -> None:
    ready, beat = home.path / "ready", home.path / "beat"
    (home.path / "bomb.py").write_text(BOMB, "utf-8")
    script = KINDS[kind] or f"{json.dumps(sys.executable)} {home.path}/bomb.py $ready; sleep 600"
    home.tool("work", f"ready={ready}; beat={beat}; {script}", grace="300ms")
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    run = home.detach(home.new(), "x")
    until(ready.exists, "the tool being ready")
    assert home.run("cancel", run, "--wait", *(["--force"] if how == "force" else [])).code == 0
    assert home.marked() == []
    assert home.status(run) == "cancelled"
    (finished,) = home.events(run, "tool.finished")
    assert finished["payload"]["status"] == "cancelled"
    if beat.exists():
        before = beat.stat().st_mtime_ns
        time.sleep(2 if how == "cancel" else 0.2)  # forty of its beats, or four
        assert beat.stat().st_mtime_ns == before


def test_a_call_returns_when_its_tool_ends_not_when_its_pipe_closes(home: Home) -> None:
    # case C8
    home.tool("work", "echo done; setsid sleep 600 & exit 3")
    home.model({"calls": [{"name": "work"}]}, {"text": "{{op:work}}"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    (finished,) = home.events(session, "tool.finished")
    assert "exit 3" in finished["payload"]["error"]
    assert "still held the output open" in finished["payload"]["note"]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_cancel_and_completion_race_and_exactly_one_wins(home: Home) -> None:
    """Both orders, over swept offsets. # covers A50 A53"""
    home.model({"text": "one two three", "delayMs": 20}, {"text": "never"})
    first = home.detach(home.new(), "x")
    begun = time.monotonic()
    home.wait_for_status(first, "completed")
    whole = time.monotonic() - begun
    winners: list[str] = []
    pause = whole / 2
    for number in range(40):
        run = home.detach(home.new(), "x")
        time.sleep(pause)
        cancelled = home.run("cancel", run, "--wait")
        status = home.status(run)
        winners.append(status)
        # Whoever has won comes later the next time, by this much or that: so it stays close, on a machine of any speed.
        step = whole / (4 + number % 5 * 8)
        pause = max(0.0, pause + (step if status == "cancelled" else -step))
        expected = {0: "cancelled", 7: "completed"}
        assert expected[cancelled.code] == status, cancelled.said
        assert (home.run_dir(run) / "report.md").exists() == (status == "completed")
        assert len(home.events(run, "run.finished")) == 1
        asked = home.events(run, "run.cancel_requested")
        assert bool(asked) == (status == "cancelled"), "a cancel that lost leaves no trace"
        # One that had not started is over with the intent itself, and there is nobody whom a sentinel could tell.
        started = home.events(run, "run.started")
        assert (home.run_dir(run) / "cancel").exists() == bool(asked and started)
        closing = [each["mode"] for each in home.messages(run) if each["role"] != "user"]
        assert closing == ["report" if status == "completed" else "ended"]
    assert {"cancelled", "completed"} == set(winners), winners
    assert home.marked() == []
