"""Checks of reports, with real commands: before the commit, on the record, and ended with the run.

# covers A38 A53 A57 B21
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow


def checked_by(home: Home, script: str) -> None:
    home.settings(agent=f"checks = {json.dumps([['/bin/sh', '-c', script, 'check']])}")


def checks_of(home: Home, run: str) -> list[tuple[str, str]]:
    shown = home.run("show", run, "--json").docs[0]["operations"]
    registered = [each["payload"]["operationId"] for each in shown if each["payload"].get("check")]
    ends = {e["payload"]["operationId"]: e["payload"]["status"] for e in shown if e["type"] == "tool.finished"}
    return [(each, ends.get(each, "open")) for each in registered]


def test_a_draft_goes_back_until_it_passes(home: Home) -> None:
    checked_by(home, 'grep -q Sources || { echo "there are no sources"; exit 1; }')
    home.model({"text": "# Report"}, {"text": "# Report\n\nSources: none"})
    session = home.new()
    sent = home.run("send", session, "x")
    assert (sent.code, sent.text) == (0, "# Report\n\nSources: none\n")
    assert checks_of(home, f"{session}/1") == [("op-2", "failed"), ("op-4", "succeeded")]
    shown = home.run("show", f"{session}/1").text
    assert "op-2  check /bin/sh -c" in shown
    assert "there are no sources" in shown
    assert "2 checks" in shown
    assert home.view(f"{session}/1")["usage"]["checks"] == 2


def test_a_check_sees_the_runs_operations_in_its_directory(home: Home) -> None:
    checked_by(home, 'test -z "$(grep model.request.finished "$1/operations.jsonl" | grep -v succeeded)"')
    session = home.new()
    assert home.run("send", session, "x").code == 0


def test_a_report_that_never_passes_is_never_delivered(home: Home) -> None:
    home.settings(agent='checks = [["false"]]\nmax_turns = 2')
    home.model({"text": "one"}, {"text": "two"}, {"text": "three"})
    session = home.new()
    assert home.run("send", session, "x").code == 1
    view = home.view(f"{session}/1")
    assert view["reason"] == "the budget of 2 turns is used up (max_turns); the last draft did not pass: false"
    assert not (home.run_dir(session) / "report.md").exists()


def test_a_cancel_ends_a_check_with_all_it_started(home: Home) -> None:
    checked_by(home, f"setsid sleep 600 & {home.gate()}")
    session = home.new()
    run = home.detach(session, "x")
    home.at_gate()
    assert home.run("cancel", run, "--wait").code == 0
    assert checks_of(home, run) == [("op-2", "cancelled")]
    assert home.marked(session) == []
    assert home.view(run)["unresolvedOperations"] == []


def test_a_follow_up_over_a_check_is_answered_before_the_end(home: Home) -> None:
    checked_by(home, home.gate())
    home.model({"text": "one"}, {"ifContains": "more", "text": "one and more"})
    session = home.new()
    run = home.detach(session, "x")
    home.at_gate()
    assert home.run("send", run, "more", "--detach").code == 0
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert (home.run_dir(run) / "report.md").read_text() == "one and more"
    assert checks_of(home, run) == [("op-2", "succeeded"), ("op-4", "succeeded")]


def test_a_run_that_dies_over_a_check_has_delivered_nothing(home: Home) -> None:
    checked_by(home, home.gate())
    session = home.new()
    run = home.detach(session, "x")
    home.at_gate()
    os.kill(home.executor(run), signal.SIGKILL)
    assert home.run("cancel", run, "--wait").code == 0
    assert checks_of(home, run) == [("op-2", "open")]
    assert home.events(run, "operation.reconciled")[0]["payload"]["status"] == "cancelled"
    assert not (home.run_dir(run) / "report.md").exists()


def test_a_failed_query_is_named_by_the_report_that_is_delivered(home: Home) -> None:
    # covers A37 A55
    home.tool("query", "echo no such table >&2; exit 1")
    home.model({"calls": [{"name": "query", "arguments": {"sql": "select 1"}}]}, {"text": "# Sales\n\nNothing."})
    session = home.new()
    sent = home.run("send", session, "x")
    assert sent.code == 0
    last = '* op-2 query {"sql":"select 1"}: failed: exit 1: no such table'
    assert sent.text.splitlines()[-1] == last
    delivered = Path(home.run_dir(session) / "report.md").read_text()
    assert delivered == sent.text
    assert home.messages(session)[-1]["text"] == delivered


def test_an_agent_that_is_a_command_is_told_what_it_did_not_pass(home: Home) -> None:
    script = home.path / "agent.sh"
    script.write_text(
        'cat > "$AGENTRUN_SCRATCH/told"; grep -q "no sources" "$AGENTRUN_SCRATCH/told" && echo Sources; echo end'
    )
    check = ["/bin/sh", "-c", "grep -q Sources || { echo there are no sources; exit 1; }"]
    agent = f'[agents.outside]\nkind = "command"\ncommand = ["/bin/sh", "{script}"]\nchecks = {json.dumps([check])}\n'
    home.config.write_text(agent)
    session = home.new()
    sent = home.run("send", session, "x")
    assert (sent.code, sent.text) == (0, "Sources\nend\n"), sent.said
    assert [status for _, status in checks_of(home, f"{session}/1")] == ["failed", "succeeded"]


def test_such_an_agent_does_not_go_on_for_ever(home: Home) -> None:
    home.config.write_text('[agents.outside]\nkind = "command"\ncommand = ["cat"]\nchecks = [["false"]]\n')
    session = home.new()
    assert home.run("send", session, "x").code == 1
    assert home.view(f"{session}/1")["reason"] == "5 reports in a row did not pass: false"


def test_a_check_that_the_user_cancels_has_not_been_passed(home: Home) -> None:
    checked_by(home, f"grep -q again && exit 0; {home.gate()}")
    home.model({"text": "one"}, {"text": "again"})
    session = home.new()
    run = home.detach(session, "x")
    home.at_gate()
    assert home.run("cancel", run, "--op", "op-2", "--wait").code == 0
    home.wait_for_status(run, "completed")
    assert checks_of(home, run) == [("op-2", "cancelled"), ("op-4", "succeeded")]
    assert (home.run_dir(run) / "report.md").read_text() == "again"
