"""Clocks that are wrong, or were set while a run went on: no lease and no order comes from them.

# case C19
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
HOUR, DAY = 3600, 86400
# Another start of the clocks that leases are measured by, as a container may have (time_namespaces(7)).
OTHER_CLOCK = ["unshare", "--user", "--map-current-user", "--time", "--boottime", "9999999", "--monotonic", "9999999"]
OTHER_CLOCK += ["--fork", "--kill-child"]
WRONG_CLOCK = (
    "import sys, time\n"
    "real, off = time.time, float(sys.argv.pop(1))\n"
    "time.time = lambda: real() + off\n"
    "import runpy\n"
    "runpy.run_module('agentrun', run_name='__main__')\n"
)

# The clocks of the machine, which jump at the moment at which a file is made: the wall clock, and the one that leases
# are measured by, which counts the time that a machine sleeps.
JUMPING_CLOCKS = (
    "import os, sys, time\n"
    "flag, wall, boot = sys.argv.pop(1), float(sys.argv.pop(1)), float(sys.argv.pop(1))\n"
    "real, real_clock = time.time, time.clock_gettime\n"
    "off = lambda by: by if os.path.exists(flag) else 0.0\n"
    "time.time = lambda: real() + off(wall)\n"
    "time.clock_gettime = lambda which: real_clock(which) + (off(boot) if which == time.CLOCK_BOOTTIME else 0.0)\n"
    "import runpy\n"
    "runpy.run_module('agentrun', run_name='__main__')\n"
)
JUMPS = {"it slept for a day": (DAY, DAY), "it was set ahead": (DAY, 0), "it was set back": (-DAY, 0)}


def at(home: Home, off: float, *words: str) -> str:
    """Runs a command on a machine whose wall clock is `off` seconds wrong; what it prints."""
    argv = [sys.executable, "-c", WRONG_CLOCK, str(off), *words]
    done = subprocess.run(argv, env=home.env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def other_clock() -> list[str]:
    try:
        subprocess.run([*OTHER_CLOCK, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces of one's own here")
    return OTHER_CLOCK


@pytest.fixture
def working(home: Home) -> str:
    """A run whose tool waits at the gate; its lease is short, yet long enough for renewals that come late."""
    home.settings(top='lease = "3s"')
    home.tool("look", f"{home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    run = str(home.detach(home.new(), "go"))
    home.at_gate()
    return run


def _executor(shown: str) -> str:
    return str(json.loads(shown)["run"]["executor"])


def generations(home: Home, run: str) -> list[int]:
    return [event["generation"] for event in home.events(run, "run.lease_acquired")]


def test_order_is_by_number_whatever_the_clocks_of_those_who_write_say(home: Home) -> None:
    home.model(*[{"text": f"report {number}"} for number in range(1, 7)])
    session = at(home, 7 * HOUR, "new").strip()
    offs = (7 * HOUR, 0, -DAY, 600, -600, 0)
    for number, off in enumerate(offs, start=1):
        at(home, off, "send", session, f"say {number}")
    messages = home.messages(session)
    assert [message["seq"] for message in messages] == list(range(1, 13))
    said = [message["text"] for message in messages if message["role"] == "user"]
    assert said == [f"say {number}" for number in range(1, 7)]
    assert [doc["seq"] for doc in home.run("show", session, "--messages", "--json").docs] == list(range(1, 13))
    shown = home.run("show", session, "--json").docs[0]["runs"]
    assert [run["runId"] for run in shown] == [f"run-{number}" for number in range(6, 0, -1)]
    for number in range(1, 7):
        # One turn of the model for each message, and none that goes round for ever.
        run = f"{session}/run-{number}"
        assert len(home.events(run, "model.request.started")) == 1
        assert [event["seq"] for event in home.events(run)] == list(range(1, len(home.events(run)) + 1))
    for words in (("ls",), ("show", session), ("show", session, "--operations")):
        assert not re.search(r"(^|\s)-\d", at(home, -DAY, *words)), words


def test_a_wall_clock_that_is_set_takes_no_run_away(home: Home, working: str, until: Until) -> None:
    for off in (DAY, -DAY):
        assert at(home, off, "recover", "--json") == ""
        until(lambda off=off: _executor(at(home, off, "show", working, "--json")) == "alive", "its being seen alive")
    home.open_gate()
    home.wait_for_status(working, "completed")
    assert generations(home, working) == [1]


# covers promise 9
@pytest.mark.parametrize("jump", JUMPS)
def test_clocks_that_jump_while_a_run_is_at_work_take_nothing_from_it(jump: str, home: Home, until: Until) -> None:
    """Neither its executor nor anybody who looks takes it for lost, nor is its time used up; order is by number."""
    home.settings(top='lease = "6s"')
    home.tool("look", f"{home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"}, {"text": "more"})
    session, flag = home.new(), home.path / "jumped"
    clocks = [sys.executable, "-c", JUMPING_CLOCKS, str(flag), *map(str, JUMPS[jump])]

    def look(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*clocks, *words], env=home.env, capture_output=True, text=True, check=False)

    sending = [*clocks, "send", session, "go", "--timeout", "1h"]
    with subprocess.Popen(sending, env=home.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as executor:
        home.at_gate()
        flag.touch()
        recovered = look("recover", "--json")
        assert (recovered.returncode, recovered.stdout) == (0, ""), recovered
        until(lambda: _executor(look("show", f"{session}/1", "--json").stdout) == "alive", "its being seen alive")
        home.open_gate()
        assert executor.communicate()[0] == b"rows\n"
    assert look("send", session, "again").returncode == 0
    assert generations(home, f"{session}/run-1") == [1]
    for run in ("run-1", "run-2"):
        seqs = [event["seq"] for event in home.events(f"{session}/{run}")]
        assert seqs == list(range(1, len(seqs) + 1))
    assert [message["role"] for message in home.messages(session)] == ["user", "assistant"] * 2
    assert not re.search(r"(^|\s)-\d", home.run("ls").text)


def test_an_executor_whose_wall_clock_is_wrong_is_alive_and_seen_to_be_lost(home: Home, until: Until) -> None:
    home.settings(top='lease = "3s"')
    home.tool("look", f"{home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    run = at(home, -DAY, "send", home.new(), "go", "--detach").strip()
    home.at_gate()
    until(lambda: home.view(run)["executor"] == "alive", "its being seen alive")
    assert home.run("recover").code == 0
    assert generations(home, run) == [1]
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "it is gone")
    assert home.run("recover").code == 0
    home.open_gate()
    home.wait_for_status(run, "completed")


def test_who_measures_by_another_clock_sees_the_renewals_all_the_same(
    home: Home, working: str, other_clock: list[str]
) -> None:
    """By its clock the lease ran out long ago; what counts is what it sees itself."""
    argv = [*other_clock, *home.argv("recover", "--json")]
    done = subprocess.run(argv, env=home.env, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    home.open_gate()
    home.wait_for_status(working, "completed")
    assert generations(home, working) == [1]


def test_an_executor_that_measures_by_another_clock_is_taken_for_frozen_when_it_is(
    home: Home, until: Until, other_clock: list[str]
) -> None:
    """By our clock its lease has months to go."""
    home.settings(top='lease = "1s"')
    home.tool("look", f"{home.gate()}; echo rows", retries=3)
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    session = home.new()
    run = f"{session}/run-1"
    argv = [*other_clock, *home.argv("send", session, "go")]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            home.at_gate()
            until(lambda: home.view(run)["executor"] == "alive", "its being seen alive")
            (pid,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            home.suspend(run, pid)
            until(lambda: home.view(run)["executor"] == "frozen", "its lease has run out")
            assert home.run("recover").code == 0
            home.open_gate()
            home.wait_for_status(run, "completed")
            assert generations(home, run) == [1, 2, 3]
        finally:
            process.kill()
