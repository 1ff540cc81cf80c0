"""`show --timeline` and `show --html`: a run against time, on terminals, in pipes and as a page."""

from __future__ import annotations

import json
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow


@pytest.fixture
def told(home: Home) -> str:
    """A session with a run that had two tools at once and failed in one, and a run that waits."""
    home.tool("query", "echo 42")
    home.tool("broken", "echo '<b>oh no</b>' >&2; exit 3")
    home.model({"text": "let me look", "calls": [{"name": "query"}, {"name": "broken"}]}, {"text": "# The report"})
    session = str(home.new("a <title>"))
    assert home.run("send", session, "analyse").code == 0
    home.model({"ask": "which week?"})
    assert home.run("send", session, "and stock?").code == 5
    return session


def test_a_run_against_time_in_a_pipe_on_a_terminal_and_in_json(home: Home, told: str) -> None:
    piped = home.run("show", f"{told}/1", "--timeline")
    assert piped.code == 0
    lines = piped.text.split("\n")
    assert lines[0].startswith(f"{told}/run-1  ✓ completed")
    names = [line.split("█")[0].split()[:3] for line in lines if " op-" in line]
    assert [name[:2] for name in names] == [["✓", "op-1"], ["✓", "op-2"], ["✗", "op-3"], ["✓", "op-4"]]

    narrow = home.terminal(
        "show", f"{told}/1", "--timeline", columns=20, env={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    )
    assert narrow.end() == 0
    assert b"\x1b" not in narrow.raw
    assert narrow.raw.isascii()
    coloured = home.terminal("show", f"{told}/1", "--timeline")
    coloured.end()
    assert b"\x1b[31m" in coloured.raw

    (doc,) = home.run("show", f"{told}/1", "--timeline", "--json").docs
    assert (doc["sessionId"], doc["runId"], doc["status"]) == (told, "run-1", "completed")
    assert [each["status"] for each in doc["statuses"]] == ["queued", "running", "completed"]
    assert [each["name"] for each in doc["operations"]][1:3] == ["query", "broken"]
    query, broken = doc["operations"][1:3]
    assert query["attempts"][0]["startedAt"] <= broken["attempts"][0]["finishedAt"]
    assert doc["inputs"][0]["deliveredAt"] >= doc["inputs"][0]["at"]


def test_a_session_against_time_is_its_runs_and_a_tail_is_its_last_operations(home: Home, told: str) -> None:
    whole = home.run("show", told, "--timeline").text
    assert whole.index("run-1  ✓ completed") < whole.index("run-2  ? waiting_input")
    assert "answer with: agentrun send" in whole
    assert [doc["runId"] for doc in home.run("show", told, "--timeline", "--json").docs] == ["run-1", "run-2"]
    assert "op-3" not in home.run("show", f"{told}/1", "--timeline", "--tail", "1").text
    empty = home.new()
    assert home.run("show", empty, "--timeline").code == 0


def test_a_page_is_a_file_of_its_own_that_replaces_nothing_unasked(home: Home, told: str) -> None:
    path = home.path / "page.html"
    made = home.run("show", told, "--html", path)
    assert made.code == 0
    assert made.out == b""
    assert f"wrote {path}" in made.said
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    for said in ("a &lt;title&gt;", "analyse", "&lt;b&gt;oh no&lt;/b&gt;", "The report", "which week?", "run-2"):
        assert said in page, said
    refused = home.run("show", told, "--html", path, "--json")
    assert refused.code == 7
    assert refused.error["code"] == "conflict"
    assert "--overwrite" in refused.error["hint"]
    again = home.run("show", f"{told}/2", "--html", path, "--overwrite", "--json")
    assert again.docs == [{"file": str(path), "bytes": path.stat().st_size}]
    assert "analyse" not in path.read_text(encoding="utf-8")
    assert home.run("show", f"{told}/2", "--html", "-").text.startswith("<!doctype html>")


def test_a_page_of_a_run_that_goes_on(home: Home) -> None:
    home.tool("wait", home.gate())
    home.model({"text": "one moment", "calls": [{"name": "wait"}]}, {"text": "done"})
    run = home.detach(home.new(), "go")
    home.wait_for_event(run, "tool.started")
    page = home.run("show", run, "--html", "-").text
    assert 'class="bar open busy"' in page
    assert "▶" in home.run("show", run, "--timeline").text
    home.open_gate()
    home.wait_for_status(run, "completed")


def test_a_run_that_cannot_be_read_hides_no_other(home: Home, told: str) -> None:
    log = home.run_dir(f"{told}/run-1") / "operations.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[3] = b"\0" * len(lines[3])
    log.write_bytes(b"\n".join(lines))
    shown = home.run("show", told, "--html", "-")
    assert shown.code == 0
    assert "which week?" in shown.text
    assert str(log) in shown.said
    warned = home.run("show", told, "--timeline", "--json")
    assert json.loads(warned.err.splitlines()[0])["warning"]["code"] == "damaged"
