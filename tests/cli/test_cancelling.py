"""`cancel` in its forms: at once, one operation alone; with real tools, and a search for what they left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow

# Longer than any test waits: whoever lets it pass fails.
NEVER_ENDING = "600s"


@pytest.fixture
def stubborn(home: Home) -> str:
    """A detached run in a tool that does not hear SIGTERM and has much time to do so."""
    ready = home.path / "ready"
    home.tool("work", f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done", grace=NEVER_ENDING)
    home.model({"calls": [{"name": "work"}]}, {"text": "never"})
    run = str(home.detach(home.new(), "x"))
    home.wait_for_event(run, "tool.started")
    return run


def _ready(home: Home, until: Until, name: str = "ready") -> None:
    until((home.path / name).exists, "the tool being ready")


# --- --force


def test_force_gives_a_stubborn_tool_no_grace(home: Home, stubborn: str, until: Until) -> None:
    # covers A46 B28
    _ready(home, until)
    assert home.run("cancel", stubborn, "--force", "--wait", "--reason", "now").code == 0
    assert home.marked(stubborn.partition("/")[0]) == []
    (asked,) = home.events(stubborn, "run.cancel_requested")
    assert (asked["payload"]["force"], asked["payload"]["reason"]) == (True, "now")
    assert home.view(stubborn)["force"] is True
    # The tool's fact stands before the end, as without it: `cancelled` was not written earlier.
    types = [event["type"] for event in home.events(stubborn)]
    assert types.index("tool.finished") < types.index("run.finished")


def test_force_as_a_second_cancel_ends_a_grace_period_that_runs(home: Home, stubborn: str, until: Until) -> None:
    _ready(home, until)
    assert home.run("cancel", stubborn).code == 6
    view = home.view(stubborn)
    assert (view["status"], view["force"]) == ("cancelling", False)
    assert home.marked(stubborn.partition("/")[0])
    assert home.run("cancel", stubborn, "--force", "--wait").code == 0
    assert home.marked(stubborn.partition("/")[0]) == []
    first, second = home.events(stubborn, "run.cancel_requested")
    assert "force" not in first["payload"]
    assert second["payload"]["force"] is True
    assert home.status(stubborn) == "cancelled"


def test_force_where_the_executor_is_gone_kills_at_once(home: Home, stubborn: str, until: Until) -> None:
    _ready(home, until)
    os.kill(home.executor(stubborn), signal.SIGKILL)
    until(lambda: home.view(stubborn)["executor"] == "lost", "the executor being gone")
    assert home.run("cancel", stubborn, "--force").code == 0
    assert home.marked(stubborn.partition("/")[0]) == []


# --- --op


@pytest.fixture
def working(home: Home) -> str:
    """A detached run in two tools at once: one that waits at the gate, and one that writes and never ends."""
    home.tool("query", f"{home.gate()}; echo 12")
    home.tool("export", f"touch {home.path}/ready; sleep 600 & wait", effect="write", approve="auto")
    home.model({"calls": [{"name": "query"}, {"name": "export"}]}, {"text": "{{op:query}} | {{op:export}}"})
    run = str(home.detach(home.new(), "x"))
    home.at_gate()
    home.wait_for_event(run, "tool.started", count=2)
    return run


def test_one_operation_is_stopped_and_the_run_goes_on(home: Home, working: str, until: Until) -> None:
    # covers A42 A45 A56
    _ready(home, until)
    done = home.run("cancel", working, "--op", "op-3", "--reason", "too slow", "--wait", "--json")
    assert done.code == 0
    (doc,) = done.docs
    assert (doc["runId"], doc["status"], doc["operation"]["operationId"]) == ("run-1", "running", "op-3")
    assert (doc["operation"]["status"], doc["operation"]["mayHaveEffects"]) == ("cancelled", True)
    assert doc["operation"]["unresolved"] is True
    assert len(home.marked(working.partition("/")[0])) > 0, "its neighbour lives on"
    home.open_gate()
    home.wait_for_status(working, "completed")
    report = (home.run_dir(working) / "report.md").read_text()
    assert report.startswith("12 | The call was stopped; it may have had effects")
    assert "cancelled by" in report
    assert "too slow" in report
    assert home.events(working, "run.cancel_requested") == []
    (asked,) = home.events(working, "operation.cancel_requested")
    assert (asked["payload"]["operationId"], asked["payload"]["via"]) == ("op-3", "command")
    assert asked["payload"]["actor"]["pid"] > 0
    assert home.marked(working.partition("/")[0]) == []


def test_an_operation_is_killed_at_once_with_force(home: Home, stubborn: str, until: Until) -> None:
    _ready(home, until)
    assert home.run("cancel", stubborn, "--op", "op-2").code == 6
    shown = home.run("cancel", stubborn, "--op", "op-2")
    assert "op-2 running, to be cancelled" in shown.text
    assert home.run("cancel", stubborn, "--op", "op-2", "--wait", "--timeout", "100ms").code == 124
    assert home.run("cancel", stubborn, "--op", "op-2", "--force", "--wait").code == 0
    home.wait_for_status(stubborn, "completed")


def test_an_operation_that_is_over_says_how_it_ended(home: Home, working: str, until: Until) -> None:
    home.open_gate()
    home.wait_for_event(working, "tool.finished")
    refused = home.run("cancel", working, "--op", "op-2", "--json")
    assert refused.code == 7
    assert refused.error["code"] == "conflict"
    assert "op-2" in refused.error["message"]
    assert "succeeded" in refused.error["message"]
    before = home.events(working)
    assert home.run("cancel", working, "--op", "op-9").code == 8
    assert home.events(working) == before
    _ready(home, until)
    assert home.run("cancel", working, "--op", "op-3", "--wait").code == 0
    assert home.run("cancel", working, "--op", "op-3").code == 0, "it was cancelled already"
    home.wait_for_status(working, "completed")
    assert home.run("cancel", working, "--op", "op-2").code == 7


def _is_not_made_after(home: Home, run: str, stop: str) -> None:
    """No attempt of `flaky` began after that event; one that it met may have been stopped before it did anything."""
    (asked,) = home.events(run, stop)
    started = home.events(run, "tool.started")
    assert started[-1]["seq"] < asked["seq"]
    assert len(started) - 1 <= len((home.path / "count").read_text().split()) <= len(started)


def test_a_call_between_two_attempts_is_not_made_again(home: Home, until: Until) -> None:
    count = home.path / "count"
    home.tool("flaky", f"echo x >> {count}; exit 75", retries=60)
    home.model({"calls": [{"name": "flaky"}]}, {"text": "{{op:flaky}}"})
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "tool.finished", count=3)
    assert home.run("cancel", run, "--op", "op-2", "--wait").code == 0
    home.wait_for_status(run, "completed")
    _is_not_made_after(home, run, "operation.cancel_requested")
    assert "cancelled by" in (home.run_dir(run) / "report.md").read_text()


def test_a_cancel_ends_the_pause_between_two_attempts(home: Home, until: Until) -> None:
    # covers A9 A45 A46 B26
    count = home.path / "count"
    home.tool("flaky", f"echo x >> {count}; exit 75", retries=60)
    home.model({"calls": [{"name": "flaky"}]}, {"text": "never"})
    run = home.detach(home.new(), "x")
    # The next pause lasts between 1.6 and 2.4 seconds.
    fourth = home.wait_for_event(run, "tool.finished", count=4)[3]["payload"]
    assert 1600 <= fourth["pauseMs"] <= 2400
    until(lambda: re.search(r"op-2  flaky  pending  attempt \d+ after \d", home.run("show", run).text), "the pause")
    assert home.run("cancel", run, "--wait").code == 0
    _is_not_made_after(home, run, "run.cancel_requested")
    ended = home.events(run, "tool.finished")[-1]["payload"]
    assert (ended["status"], ended.get("willRetry")) == ("cancelled", None)
    assert home.status(run) == "cancelled"


def test_a_call_that_waits_for_its_approval_is_denied(home: Home) -> None:
    home.tool("export", f"touch {home.path}/exported", effect="write", approve="ask")
    home.tool("mail", f"touch {home.path}/mailed", effect="write", approve="ask")
    home.model({"calls": [{"name": "export"}, {"name": "mail"}]}, {"text": "{{op:export}} | {{op:mail}}"})
    session = home.new()
    assert home.run("send", session, "x").code == 5
    # The second one is not asked about yet: it is skipped when its turn comes.
    assert home.run("cancel", session, "--op", "op-3", "--reason", "no mail").code == 6
    assert home.run("cancel", session, "--op", "op-2", "--reason", "no rows", "--wait").code == 0
    home.wait_for_status(session, "completed")
    report = (home.run_dir(session) / "report.md").read_text()
    assert "no rows" in report
    assert "no mail" in report
    assert not (home.path / "exported").exists()
    assert not (home.path / "mailed").exists()
    assert len(home.events(session, "run.waiting_input")) == 1


def test_a_model_request_is_stopped_and_asked_again(home: Home) -> None:
    home.model({"text": "word after word", "delayMs": 60_000})
    run = home.detach(home.new(), "x")
    home.wait_for_event(run, "model.request.started")
    assert home.run("cancel", run, "--op", "op-1", "--wait").code == 0
    home.wait_for_event(run, "model.request.started", count=2)
    (finished,) = home.events(run, "model.request.finished")
    assert finished["payload"]["status"] == "cancelled"
    assert "cancelled by" in finished["payload"]["error"]
    assert home.view(run)["status"] == "running"
    assert home.run("cancel", run, "--wait").code == 0


def test_an_operation_of_a_lost_run_keeps_its_intent(home: Home, working: str, until: Until) -> None:
    _ready(home, until)
    os.kill(home.executor(working), signal.SIGKILL)
    until(lambda: home.view(working)["executor"] == "lost", "the executor being gone")
    done = home.run("cancel", working, "--op", "op-3", "--wait")
    assert done.code == 6
    assert "its executor is gone" in done.said
    (operation,) = [each for each in home.view(working)["openOperations"] if each["operationId"] == "op-3"]
    assert operation["cancelRequestedAt"]
    assert home.run("cancel", working, "--wait").code == 0
    assert home.marked(working.partition("/")[0]) == []
