"""The scripts of examples/shell, as a user runs them: real shells, pipes, closed descriptors, no terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "shell"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("jq"), reason="needs jq: apt-get install jq")]

CONFIG = """
default_agent = "a"
[agents.a]
model = "scripted:s.json"
tools = ["look"]
[tools.look]
argv = ["sh", "-c", "echo 12"]
effect = "read"
"""
TURNS = [
    {"ifContains": "ask me", "ask": "Which week?"},
    {"ifContains": "use tools", "calls": [{"name": "look"}, {"name": "look"}]},
    {"ifContains": "fail", "text": ""},
    {"text": "# The report"},
]


class Scripts(NamedTuple):
    """A directory with a tree of its own, shared by all tests of this file."""

    directory: Path
    env: dict[str, str]

    def run(self, name: str, *arguments: str, stdin: str = "", **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", kwargs.pop("line", 'exec "$0" "$@"'), str(SCRIPTS / name), *arguments],
            input=stdin, env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=150, check=False,
            **kwargs,
        )  # fmt: skip

    def agentrun(self, *arguments: str) -> str:
        done = subprocess.run(["agentrun", *arguments], env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def messages(self, session: str) -> list[str]:
        (path,) = (self.directory / "root").glob(f"accounts/*/sessions/{session}/messages.jsonl")
        return [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    directory = tmp_path_factory.mktemp("shell")
    (directory / "bin").mkdir()
    (directory / "bin" / "agentrun").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentrun "$@"\n')
    (directory / "bin" / "agentrun").chmod(0o755)
    (directory / "agentrun.toml").write_text(CONFIG)
    (directory / "s.json").write_text(json.dumps({"turns": TURNS}))
    env = {
        "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
        "AGENTRUN_ROOT": str(directory / "root"),
        "AGENTRUN_CONFIG": str(directory / "agentrun.toml"),
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return Scripts(directory, env)


def test_every_script_is_on_the_page_and_is_run_here() -> None:
    names = sorted(path.name for path in SCRIPTS.glob("*.sh"))
    assert sorted(re.findall(r"^\| \[(\S+)\]\(\1\)", (SCRIPTS / "README.md").read_text(), re.MULTILINE)) == names
    here = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in names if f'"{name}"' not in here] == []
    assert all(os.access(SCRIPTS / name, os.X_OK) for name in names)


def test_a_prompt_comes_from_a_pipe_and_the_report_goes_into_one(scripts: Scripts) -> None:
    done = scripts.run("review.sh", stdin="+ a line\n")
    assert (done.returncode, done.stdout) == (0, "# The report\n")
    assert scripts.messages(scripts.agentrun("ls", "review", "--json").split('"sessionId":"')[1].split('"')[0]) == [
        "Review this:\n\n+ a line",
        "# The report",
    ]
    failed = scripts.run("review.sh", stdin="fail")
    assert (failed.returncode, failed.stdout) == (1, "")


def test_files_become_part_of_a_prompt(scripts: Scripts) -> None:
    for name in ("one.csv", "two.csv"):
        (scripts.directory / name).write_text(f"rows of {name}\n")
    assert scripts.run("compare.sh", "one.csv", "two.csv", "report.md").returncode == 0
    assert (scripts.directory / "report.md").read_text() == "# The report\n"
    missing = scripts.run("compare.sh", "one.csv", "none.csv", "report.md")
    assert missing.returncode == 2
    assert "none.csv" in missing.stderr


def test_many_are_asked_at_the_same_time_each_in_its_own_session(scripts: Scripts) -> None:
    regions = ["north", "south and 'south'", 'east "$HOME"', "west; exit 9", "centre"]
    done = scripts.run("many.sh", "How were sales in", stdin="".join(f"{region}\n" for region in regions))
    assert (done.returncode, done.stdout) == (0, "")
    reports = sorted(scripts.directory.glob("session-*.md"))
    assert [path.read_text() for path in reports] == ["# The report\n"] * 5
    asked = {scripts.messages(path.stem)[0] for path in reports}
    assert asked == {f"How were sales in {region}" for region in regions}
    assert scripts.run("many.sh", "fail", stdin="north\n").returncode == 123


def test_events_go_through_jq_and_a_reader_that_leaves_stops_nothing(scripts: Scripts) -> None:
    scripts.agentrun("new", "--id", "followed")
    done = scripts.run("follow.sh", "followed", "use tools")
    # They run at the same time, and end in either order.
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["op-2\tsucceeded", "op-3\tsucceeded"])
    first = scripts.run("follow.sh", "followed", "use tools", line='"$0" "$@" | head -n 1')
    assert first.stdout in ("op-2\tsucceeded\n", "op-3\tsucceeded\n")
    scripts.agentrun("wait", "followed")
    assert scripts.messages("followed")[-1] == "# The report"


def test_codes_that_are_no_failures_are_taken_before_set_e(scripts: Scripts) -> None:
    scripts.agentrun("new", "--id", "careful")
    asks = scripts.run("careful.sh", "careful", "ask me", "careful.md")
    assert (asks.returncode, asks.stdout) == (5, "it asks: Which week?\n")
    assert scripts.run("waiting.sh").stdout == "careful\tquestion\tWhich week?\n"
    done = scripts.run("careful.sh", "careful", "the last one", "careful.md")
    assert (done.returncode, done.stdout) == (0, "the report is in careful.md\n")
    assert scripts.run("waiting.sh").stdout == ""


def test_nothing_is_open_and_the_code_still_tells(scripts: Scripts) -> None:
    scripts.agentrun("new", "--id", "silent")
    done = scripts.run("silent.sh", "silent", "analyse")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert scripts.messages("silent") == ["analyse", "# The report"]
    assert scripts.run("silent.sh", "silent", "fail").returncode == 1


def test_cron_has_no_terminal_and_asks_once_a_night(scripts: Scripts) -> None:
    run: Callable[..., subprocess.CompletedProcess[str]] = lambda key: scripts.run(  # noqa: E731
        "nightly.sh", key, start_new_session=True
    )
    first, again = run("2026-03-20"), run("2026-03-20")
    assert (first.returncode, first.stdout) == (0, "# The report\n")
    assert again.returncode == 0
    assert scripts.messages("nightly") == ["Review last night.", "# The report"]
    assert run("2026-03-21").returncode == 0
    assert len(scripts.messages("nightly")) == 4
