"""Checks that are commands: what they get, and when a draft has passed."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from standstill import run_once_ready

from agentrun.adapters import checks
from agentrun.adapters.checks import CommandCheck
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import Invocation, ToolOutcome
from agentrun.states import OperationStatus as Status


def check(directory: Path, script: str) -> CommandCheck:
    surroundings = Surroundings(
        root=str(directory),
        config_path=None,
        account="ann",
        session_id="session-1",
        run_id="run-7",
        scratch=str(directory / "run-7" / "scratch"),
        working_directory="/",
        environment={"PATH": os.environ["PATH"], "OPENAI_API_KEY": "secret"},
    )
    argv = ("/bin/sh", "-c", script, "check")
    return CommandCheck(argv, surroundings, directory=str(directory), secrets={"OPENAI_API_KEY"})


def made(each: CommandCheck, draft: bytes = b"# Draft\n") -> ToolOutcome:
    stopped: list[ToolOutcome] = []
    return anyio.run(each.run, draft, Invocation("op-9", {}, "key", 1), stopped.append)


def printed(outcome: ToolOutcome) -> str:
    assert not isinstance(outcome.output, bytes)
    with outcome.output as output:
        return output.read().decode()


def test_it_gets_the_draft_and_the_runs_directory_and_a_tools_environment(tmp_path: Path) -> None:
    asks = 'cat; echo "$1 $AGENTRUN_RUN $AGENTRUN_OPERATION ${OPENAI_API_KEY:-none}"; pwd; exit 1'
    outcome = made(check(tmp_path, asks))
    assert printed(outcome) == f"# Draft\n{tmp_path}/run-7 run-7 op-9 none\n{tmp_path}\n"


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("exit 0", Status.SUCCEEDED, None),
        ("echo why >&2; exit 1", Status.FAILED, "exit 1: why"),
        ("exit 75", Status.FAILED, "exit 75"),
        ("kill -KILL $$", Status.FAILED, "ended by SIGKILL"),
    ],
)
def test_only_exit_0_passes(tmp_path: Path, script: str, status: Status, error: str | None) -> None:
    outcome = made(check(tmp_path, script))
    assert (outcome.status, outcome.error) == (status, error)


def test_it_need_not_read_the_draft(tmp_path: Path) -> None:
    assert made(check(tmp_path, "exit 0"), b"x" * 1_000_000).status is Status.SUCCEEDED


def test_a_command_that_is_not_there_passes_nothing(tmp_path: Path) -> None:
    each = check(tmp_path, "")
    each._argv = ("no-such-command",)
    outcome = made(each)
    assert outcome.status is Status.FAILED
    assert "cannot start 'no-such-command'" in str(outcome.error)


@pytest.mark.slow
def test_it_is_bounded_in_time_and_in_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.3)
    monkeypatch.setattr(checks, "MAX_OUTPUT", 1000)
    each = check(tmp_path, "head -c 5000 /dev/zero; touch said; yes; sleep 60")
    stopped: list[ToolOutcome] = []
    asked = Invocation("op-9", {}, "key", 1)
    outcome = run_once_ready((tmp_path / "said").exists, lambda: each.run(b"# Draft\n", asked, stopped.append))
    assert outcome.status is Status.TIMED_OUT
    assert len(printed(outcome)) == 1000
    assert "only the first 1000" in str(outcome.note)


def test_its_name_is_the_command_and_nothing_that_changes_from_run_to_run(tmp_path: Path) -> None:
    assert check(tmp_path, "exit 0").name == "/bin/sh -c 'exit 0' check"
