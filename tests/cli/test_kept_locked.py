"""A session's lock in the hands of a process that does not let go: commands say so, and executors wait."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.disk import Directory
from agentrun.store.locks import lock_holder
from tests.cli.conftest import state, until

Home = Any

pytestmark = pytest.mark.slow
NOT_OVER, CONFLICT = 6, 7


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@contextmanager
def kept(home: Home, session: str) -> Iterator[int]:
    """A process that has the session's lock and is no agentrun."""
    path = home.session_dir(session)
    directory = Directory.root(str(path))
    with subprocess.Popen(["flock", "--no-fork", path, "sleep", "600"]) as process:
        # It takes the lock before it becomes what it is told to run.
        until(lambda: (lock_holder(directory), _name(process.pid)) == (process.pid, "sleep"), "the lock")
        try:
            yield process.pid
        finally:
            process.kill()
            directory.close()


def test_commands_that_write_name_a_suspended_process_and_those_that_read_do_not_wait(home: Home) -> None:
    home.model({"ask": "which?"}, {"text": "the report"})
    session = home.new()
    assert home.run("send", session, "go").code == 5
    with kept(home, session) as pid:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", "it stands still")
        writing = (
            ("send", session, "all"),
            ("steer", session, "not that"),
            ("cancel", session),
            ("rename", session, "x"),
        )
        started = [home.start(*words, "--json") for words in writing]
        reading = [home.start(*words) for words in (("show", session), ("show", session, "--messages"), ("ls",))]
        assert [each.end().code for each in reading] == [0, 0, 0]
        assert not any(each.is_over for each in started), "they look for eight seconds who it is that has it"
        before = home.messages(session)
        # The time that was given is shorter than that: otherwise it would be refused as they are.
        done = home.run("cancel", session, "--wait", "--timeout", "1s", "--json")
        assert (done.code, done.error["code"]) == (124, "timeout")
        assert f"kept locked by sleep (pid {pid}), which is suspended; no stop is stored" in done.error["message"]
        for each in started:
            done = each.end()
            assert (done.code, done.error["code"]) == (CONFLICT, "conflict")
            assert f"kept locked by sleep (pid {pid}), which is suspended" in done.error["message"]
            assert f"kill -CONT {pid}" in done.error["hint"]
        assert home.messages(session) == before
    assert home.run("send", session, "all").code == 0


def test_an_executor_waits_and_is_not_ended_for_waiting(home: Home) -> None:
    home.settings(top='lease = "1s"')
    home.tool("look", f"{home.gate()}; echo rows")
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    session = home.new()
    run = str(home.detach(session, "go"))
    home.at_gate()
    with kept(home, session) as pid:
        late = until(lambda: home.view(run)["late"], "its lease, which it cannot renew, being over")
        assert (late["cause"], late["pid"]) == ("kept_waiting", home.executor(run))
        assert late["keeper"] == {"pid": pid, "name": "sleep", "suspended": False}
        shown = home.run("show", run).text
        assert f"sleep (pid {pid}) has the session's lock" in shown
        assert "agentrun resume" not in shown, "another executor would have to wait as well"
        home.open_gate()
        done = home.run("recover", "--json")
        assert (done.code, [doc["outcome"] for doc in done.docs]) == (NOT_OVER, ["left"])
        assert f"pid {pid}" in done.docs[0]["reason"]
        assert home.status(run) == "running"
    home.wait_for_status(run, "completed")
    assert [event["generation"] for event in home.events(run, "run.lease_acquired")] == [1]
    home.at_gate(1)
    assert len(home.events(run, "tool.started")) == 1
