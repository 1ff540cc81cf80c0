"""A program that knows the pages alone finds nothing wrong in what agentrun writes, and finds what is.

Covers B13 B63.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Home

READER = Path(__file__).parents[2] / "examples" / "second-reader" / "reader.py"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def read(session: Path) -> tuple[int, list[str]]:
    """Its exit code, and what it says is wrong."""
    done = subprocess.run(
        [sys.executable, str(READER), str(session)], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.stderr == ""
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("WRONG")]


@pytest.mark.slow
def test_it_agrees_with_sessions_of_every_kind_and_sees_what_was_changed(home: Home) -> None:
    home.tool("query", "echo 42")
    home.tool("broken", "exit 3")
    home.tool("wait", home.gate())
    home.model(
        {"ifContains": "hold", "calls": [{"name": "wait"}]},
        {"ifContains": "look", "calls": [{"name": "query"}, {"name": "broken"}]},
        {"ifContains": "who", "ask": "who asks?"},
        {"text": "a report"},
    )
    session = home.new("one of everything")
    assert home.run("send", session, "look", "--key", "k").code == 0
    assert home.run("send", session, "who").code == 5
    assert home.run("send", session, "I do").code == 0
    held = home.detach(session, "hold")
    home.wait_for_event(held, "tool.started")
    queued = home.detach(session, "later", "--if-busy", "queue")
    assert read(home.session_dir(session)) == (0, [])
    assert home.run("steer", held, "not that way").code == 0
    assert home.run("cancel", held, "--wait").code == 0
    home.wait_for_status(queued, "completed")
    assert home.run("compact", session).code == 0
    fork = home.run("fork", session).text.strip()
    assert home.run("send", fork, "in the fork").code == 0
    for each in (session, fork):
        assert read(home.session_dir(each)) == (0, [])

    path = home.run_dir(f"{session}/run-1") / "run.json"
    doc = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(doc | {"attempts": 7}), encoding="utf-8")
    code, wrong = read(home.session_dir(session))
    assert code == 1
    assert len(wrong) == 1
    assert "run-1" in wrong[0]

    # Behind damage it folds as agentrun does, and holds nothing against what cannot be read.
    for run, damaged in (("run-1", ["run.accepted"]), ("run-2", ["run.started", "run.waiting_input"])):
        assert wrong_after(home, f"{session}/{run}", damaged) == len(damaged)
    assert wrong_after(home, held, ["run.cancel_requested"]) == 1
    home.close()


def wrong_after(home: Home, run: str, types: list[str]) -> int:
    """How much is wrong once the first events of these types cannot be read, and run.json is made anew."""
    log = home.run_dir(run) / "operations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for kind in types:
        number = next(each for each, line in enumerate(lines) if f'"type":"{kind}"'.encode() in line)
        lines[number] = lines[number].replace(b'"seq"', b'"sec"')
    log.write_bytes(b"".join(lines))
    (home.run_dir(run) / "run.json").unlink()
    home.run("check", run.partition("/")[0], "--repair")
    _, wrong = read(home.session_dir(run))
    about = [line for line in wrong if f"/{run.partition('/')[2]}/" in line or run.partition("/")[2] in line]
    assert all("operations.jsonl: line" in line for line in about), about
    return len(about)
