"""The end of a run's log is lost while a tool that writes is under way: the run does not act a second time.

Covers A60, B38, B54, promises 2 and 11.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
NOT_OVER, CONFLICT, DAMAGED = 6, 7, 10


def _the_last_line(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))


def _all_that_came_since_the_start(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))


def _the_last_byte(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)


def _half(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


@pytest.mark.parametrize("approve", ["auto", "ask"])
def test_a_write_is_not_sent_off_again_where_the_log_forgot_it(home: Home, until: Until, approve: str) -> None:
    script = f"echo x >>'{home.path}/effects'; {home.gate()}"
    home.tool("export", script, effect="write", approve=approve)
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    for cut in (_the_last_line, _the_last_byte, _half, _all_that_came_since_the_start):
        (home.path / "effects").unlink(missing_ok=True)
        run = home.detach(home.new(), "go")
        if approve == "ask":
            home.wait_for_status(run, "waiting_input")
            home.run("approve", run)
        until((home.path / "effects").exists, "the tool acts")
        os.kill(home.executor(run), signal.SIGKILL)
        until(lambda run=run: home.view(run)["executor"] == "lost", "the executor is gone")
        cut(home.run_dir(run) / "operations.jsonl")
        assert home.run("recover").code == NOT_OVER, cut
        assert home.run("resume", run).code in (CONFLICT, DAMAGED), cut
        assert home.run("check", run.partition("/")[0]).code == DAMAGED, cut
        assert "cannot be read" in home.run("show", run).text, cut
        ended = home.run("cancel", run, "--wait")
        assert (ended.code, home.view(run)["status"]) == (0, "cancelled"), cut
        assert (home.path / "effects").read_text() == "x\n", cut
