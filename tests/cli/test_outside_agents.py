"""Agents from outside on the command line: their sessions, cancel and reports are like those of any other."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Until = Callable[..., Any]


def shell(script: str) -> str:
    return f"command:sh -c {json.dumps(script)}"


@pytest.mark.slow
def test_a_command_is_an_agent_without_any_configuration(home: Any, tmp_path: Path) -> None:
    # covers A26
    work = tmp_path / "work"
    work.mkdir()
    home.config.unlink()
    env = {"AGENTRUN_CONFIG": ""}
    made = home.run("new", "--agent", shell("pwd; cat"), cwd=work, env=env)
    session = made.text.strip()
    sent = home.run("send", session, "count the lamps", env=env)
    assert (sent.code, sent.text) == (0, f"{work}\ncount the lamps\n"), sent.said
    again = home.run("send", session, "and the chairs", env=env)
    assert "User: count the lamps" in again.text
    assert "You: " in again.text
    assert (home.run_dir(f"{session}/run-1") / "report.md").read_text() == f"{work}\ncount the lamps"


@pytest.mark.slow
def test_cancel_ends_all_that_the_command_started(home: Any, until: Until) -> None:
    # covers A46; case C7
    session = home.new("--agent", shell("setsid sleep 1000 & sleep 1000 & echo working; wait"))
    run = home.detach(session, "go")
    draft = home.run_dir(run) / "report.draft.md"
    until(lambda: draft.exists() and draft.read_text() == "working\n")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(run) == "cancelled"
    assert home.marked(session) == []
    (finished,) = home.events(run, "model.request.finished")
    assert (finished["payload"]["status"], finished["payload"]["text"]) == ("cancelled", "working\n")


@pytest.mark.slow
def test_a_configured_command_keeps_its_own_conversation_in_the_session(home: Any) -> None:
    # covers A26
    script = home.path / "agent.py"
    script.write_text(
        "import json, os, sys\n"
        "known = os.environ.get('AGENTRUN_REMOTE_SESSION')\n"
        "print(json.dumps({'type': 'session', 'id': known or 'thread-1'}))\n"
        "print(json.dumps({'type': 'text', 'text': f'{known}: {sys.stdin.read()}'}))\n"
    )
    command = json.dumps([sys.executable, str(script)])
    home.config.write_text(f'[agents.cli]\nkind = "command"\ncommand = {command}\n')
    session = home.new()
    assert home.run("send", session, "one").text == "None: one\n"
    assert home.run("send", session, "two").text == "thread-1: two\n"
    document = json.loads((home.session_dir(session) / "session.json").read_bytes())
    assert document["remoteIds"] == {"command:cli": "thread-1"}


@pytest.mark.slow
def test_a_command_that_fails_fails_the_run(home: Any) -> None:
    session = home.new("--agent", shell("echo half; echo no key >&2; exit 3"))
    sent = home.run("send", session, "go")
    assert sent.code == 1
    assert sent.out == b""
    assert "exit 3: no key" in sent.said
    assert not (home.run_dir(f"{session}/run-1") / "report.md").exists()


def small_agent(home: Any) -> str:
    return f"acp:env HEARD={home.path / 'heard'} {sys.executable} -m agentrun.testing.acp_agent"


@pytest.mark.slow
def test_an_agent_that_speaks_acp_keeps_its_conversation_with_the_session(home: Any) -> None:
    # covers A26 A40
    pytest.importorskip("acp", reason="needs the extra acp")
    session = home.new("--agent", small_agent(home))
    assert home.run("send", session, "one read").code == 0
    document = json.loads((home.session_dir(session) / "session.json").read_bytes())
    (kept,) = document["remoteIds"].values()
    assert kept.startswith("small-")
    again = home.run("send", session, "recall")
    assert again.text.strip() == "['one', 'read']", again.said
    assert home.marked(session) == []


@pytest.mark.slow
def test_a_permission_is_given_from_elsewhere_to_a_run_that_waits_on_disk(home: Any, until: Until) -> None:
    # covers A40
    pytest.importorskip("acp", reason="needs the extra acp")
    session = home.new("--agent", small_agent(home))
    assert home.run("send", session, "permission").code == 5
    assert home.marked(session) == []
    assert home.run("deny", session, "--note", "not today").code == 0
    run = f"{session}/run-1"
    home.wait_for_status(run, "completed")
    (report,) = [each["text"] for each in home.messages(session) if each["mode"] == "report"]
    assert "[The user has denied rm -r x: not today]".replace(" ", "") in report.replace(" ", "")


@pytest.mark.slow
def test_a_cancel_is_told_to_an_agent_and_ends_all_that_it_started(home: Any, until: Until) -> None:
    # covers A45 A46; case C7
    pytest.importorskip("acp", reason="needs the extra acp")
    session = home.new("--agent", small_agent(home))
    run = home.detach(session, "hang-edit")
    home.wait_for_event(run, "tool.started")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked(session) == []
    (ended,) = home.events(run, "tool.finished")
    assert ended["payload"]["status"] == "succeeded"
    assert "session/cancel" in (home.path / "heard").read_text()


def lose(home: Any, run: str, until: Until) -> None:
    """kill -9 of a run's executor; what its agent has left running goes on."""
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor is gone")


@pytest.mark.slow
def test_a_command_that_lost_its_executor_is_ended_and_begun_again_on_the_users_word(home: Any, until: Until) -> None:
    # covers A58 A60 A61 B33
    effects = home.path / "effects"
    session = home.new("--agent", shell(f"echo x >>{effects}; setsid sleep 1000 & {home.gate()}; echo done"))
    run = home.detach(session, "go")
    home.at_gate()
    lose(home, run, until)
    assert home.run("recover").code == 0
    # Nobody knows what it had done by itself: it is not simply begun once more.
    home.wait_for_status(run, "waiting_input")
    assert "nobody knows how much it had done" in home.view(run)["waitingFor"]["text"]
    assert home.marked(session) == []
    assert effects.read_text() == "x\n"
    home.open_gate()
    assert home.run("send", session, "go on from there").code == 0
    assert (home.status(run), effects.read_text()) == ("completed", "x\nx\n")


@pytest.mark.slow
def test_a_command_that_changes_nothing_is_begun_again_by_itself(home: Any, until: Until) -> None:
    # covers A61
    effects = home.path / "effects"
    command = json.dumps(["/bin/sh", "-c", f"echo x >>{effects}; {home.gate()}; echo done"])
    home.config.write_text(f'[agents.cli]\nkind = "command"\ncommand = {command}\neffect = "read"\n')
    run = home.detach(home.new(), "go")
    home.at_gate()
    lose(home, run, until)
    home.open_gate()
    assert home.run("recover").code == 0
    home.wait_for_status(run, "completed")
    assert home.run("show", run, "--report").text == "done\n"
    assert effects.read_text() == "x\nx\n"


@pytest.mark.slow
def test_an_acp_agent_that_lost_its_executor_is_ended_with_all_that_it_started(home: Any, until: Until) -> None:
    # covers A58 A60 A61 B33
    pytest.importorskip("acp", reason="needs the extra acp")
    session = home.new("--agent", small_agent(home))
    run = home.detach(session, "hang-edit")
    home.wait_for_event(run, "tool.started")
    lose(home, run, until)
    done = home.run("recover", "--json")
    # Its edit was under way: nobody knows whether it was made.
    assert (done.code, [doc["outcome"] for doc in done.docs]) == (6, ["left"])
    assert home.marked(session) == []
    (unknown,) = home.view(run)["unresolvedOperations"]
    assert home.run("reconcile", run, unknown["operationId"], "--as", "failed").code == 0
    assert home.run("recover").code == 0
    # The agent remembers: its own conversation is opened again, and it goes on.
    home.wait_for_event(run, "tool.started", count=2)
    heard = [json.loads(line) for line in (home.path / "heard").read_text().splitlines()]
    assert [each["method"] for each in heard if "session/load" in str(each.get("method"))] == ["session/load"]
    assert home.run("cancel", run, "--wait").code == 0
    assert home.marked(session) == []


@pytest.mark.slow
def test_an_agent_that_counts_beyond_all_numbers_damages_no_record(home: Any) -> None:
    # covers promises 2, 13
    lines = [{"type": "usage", "inputTokens": 2**53 - 1, "outputTokens": number} for number in (10**400, -7, 3)]
    lines += [{"type": "session", "id": name} for name in ("thread-1", "a\0b", "\ud800", "x" * 5000)]
    script = home.path / "agent.py"
    script.write_text(
        f"print({json.dumps(chr(10).join(map(json.dumps, lines)))})\n"
        "import json, os\n"
        "print(json.dumps({'type': 'text', 'text': os.environ.get('AGENTRUN_REMOTE_SESSION', 'new here')}))\n"
    )
    config = f"[agents.cli]\nkind = 'command'\ncommand = [{sys.executable!r}, {str(script)!r}]\n"
    home.config.write_text(home.config.read_text() + config)
    session = home.new("--agent", "cli")
    assert [home.run("send", session, "go").text for _ in range(2)] == ["new here\n", "thread-1\n"]
    assert home.run("check", session).code == 0
    usage = home.view(f"{session}/run-1")["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (None, 3)
