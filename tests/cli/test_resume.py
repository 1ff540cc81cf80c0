"""`resume`: the same run goes on, or a linked one begins; it says which, and refuses in words."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import is_gone

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
CONFLICT = 7


def lose(home: Home, run: str, until: Until) -> None:
    os.kill(home.executor(run), signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor is gone")


# covers A61 A67
@pytest.mark.parametrize("detached", [False, True])
def test_a_lost_run_is_continued_and_nothing_that_ended_is_repeated(detached: bool, home: Home, until: Until) -> None:
    home.tool("count", f"echo x >>'{home.path}/effects'; echo counted", effect="write", approve="auto")
    home.tool("look", f"{home.gate()}; echo rows", retries=1)
    home.model({"calls": [{"name": "count"}]}, {"calls": [{"name": "look"}]}, {"text": "{{op:count}}, {{op:look}}"})
    session = home.new()
    run = home.detach(session, "go")
    home.wait_for_event(run, "tool.started", count=2)
    lose(home, run, until)
    home.open_gate()
    done = home.run("resume", session, *(["--detach"] if detached else []))
    assert done.code == 0, done.said
    assert f"goes on with {run}, attempt 2" in done.said
    assert done.text == (f"{run}\n" if detached else "counted, rows\n")
    home.wait_for_status(run, "completed")
    assert (home.path / "effects").read_text() == "x\n"
    assert home.view(run)["attempts"] == 2
    # Each call has one result, and the run is the session's only one.
    finished = [event["payload"]["operationId"] for event in home.events(run, "tool.finished")]
    assert sorted(set(finished)) == ["op-2", "op-4"]
    assert len(home.messages(session)) == 2


# covers A67 A68 A17
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_run_that_is_over_stays_so_and_a_linked_one_begins(end: str, home: Home, until: Until) -> None:
    session = home.new()
    run = f"{session}/run-1"
    if end == "completed":
        assert home.run("send", session, "the prompt").code == 0
    elif end == "failed":
        home.model()
        assert home.run("send", session, "the prompt").code == 1
        home.model({"text": "a report"})
    else:
        home.tool("hold", home.gate())
        home.model({"calls": [{"name": "hold"}]})
        home.detach(session, "the prompt")
        home.wait_for_event(run, "tool.started")
        assert home.run("cancel", session, "--wait").code == 0
        home.model({"text": "a report"})
    before = home.events(run)
    done = home.run("resume", session, "--json")
    assert done.code == 0, done.said
    first = done.docs[0]
    assert (first["how"], first["runId"], first["continues"]) == ("linked", "run-2", "run-1")
    view = home.view(f"{session}/run-2")
    assert (view["status"], view["continues"]) == ("completed", "run-1")
    assert view["references"] == (["run-1"] if end == "completed" else [])
    prompts = [message for message in home.messages(session) if message["role"] == "user"]
    assert [(message["mode"], message["text"]) for message in prompts] == [("prompt", "the prompt")] * 2
    assert prompts[1]["accept"]["continues"] == "run-1"
    assert home.events(run) == before
    assert home.status(run) == end


# covers A69
def test_an_ended_run_is_not_begun_anew_while_a_write_that_was_cut_off_is_unresolved(home: Home, until: Until) -> None:
    home.tool("export", f"echo x >>'{home.path}/effects'; {home.gate()}", effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "go")
    home.at_gate()
    assert home.run("cancel", run, "--wait").code == 0
    assert home.view(run)["unresolvedOperations"][0]["status"] == "cancelled"
    refused = home.run("resume", run, "--json")
    assert refused.code == CONFLICT
    assert "op-2 (export)" in refused.error["message"]
    assert home.run("reconcile", run, "op-2", "--as", "failed").code == 0
    home.open_gate()
    assert home.run("resume", run, "--detach").code == 0
    home.wait_for_status(f"{session}/run-2", "completed")
    assert (home.path / "effects").read_text() == "x\nx\n"  # twice by the user's word


# covers A61 A69
def test_what_nobody_knows_is_settled_first_whether_the_run_goes_on_or_is_over(home: Home, until: Until) -> None:
    home.tool("export", f"echo x >>'{home.path}/effects'; {home.gate()}", effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "go")
    home.at_gate()
    lose(home, run, until)
    for _ in range(2):
        refused = home.run("resume", run, "--json")
        assert refused.code == CONFLICT
        assert "op-2 (export)" in refused.error["message"]
        assert f"agentrun reconcile {run} op-2" in refused.error["hint"]
    assert home.run("cancel", run).code == 0
    assert home.run("resume", run).code == CONFLICT
    assert home.run("reconcile", run, "op-2", "--as", "failed").code == 0
    home.open_gate()
    assert home.run("resume", run, "--detach").code == 0
    home.wait_for_status(f"{session}/run-2", "completed")


def test_a_run_that_is_driven_or_waits_is_not_resumed(home: Home, until: Until) -> None:
    home.tool("hold", home.gate())
    home.model({"calls": [{"name": "hold"}]}, {"ask": "which?"})
    session = home.new()
    run = home.detach(session, "go")
    home.wait_for_event(run, "tool.started")
    refused = home.run("resume", run)
    assert (refused.code, f"agentrun show -f {run}" in refused.said) == (CONFLICT, True)
    home.open_gate()
    home.wait_for_status(run, "waiting_input")
    refused = home.run("resume", run)
    assert (refused.code, f"agentrun send {session}" in refused.said) == (CONFLICT, True)
    assert len(home.events(run, "run.lease_acquired")) == 1


def test_a_queued_run_that_nobody_drives_is_started(home: Home, until: Until) -> None:
    session = home.new()
    run = home.detach(session, "go")
    pid = home.executor(run)
    until(lambda: is_gone(pid), "its executor has left")
    path = home.session_dir(session) / "messages.jsonl"
    prompt = json.loads(path.read_text().splitlines()[0]) | {"seq": 3, "runId": "run-2"}
    with path.open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    done = home.run("resume", session, "--json")
    assert (done.code, done.docs[0]["how"], done.docs[0]["runId"]) == (0, "started", "run-2")
    assert home.status(f"{session}/run-2") == "completed"
