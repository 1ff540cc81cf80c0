"""Runs that a run begins: `delegate`, and any `send` inside a tool; found, shown, and stopped with it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentrun.commands.reconcile import reconcile
from agentrun.states import OperationStatus
from agentrun.store.tree import Tree
from tests.cli.conftest import until

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow

AGENTRUN = f'"{sys.executable}" -m agentrun'


def helper(home: Home, *turns: dict[str, Any], tools: str = "[]") -> None:
    """A second agent, `helper`, with a script of its own."""
    (home.path / "helper.json").write_text(json.dumps({"turns": turns}), "utf-8")
    top = f'default_agent = "analyst"\n[agents.helper]\nmodel = "scripted:helper.json"\ntools = {tools}\n'
    home.settings(top=top)


def parent_agent(home: Home, *tools: str) -> None:
    """Gives the usual agent these tools as well."""
    text = home.config.read_text()
    head, table, rest = text.partition("[agents.analyst]")
    lines = rest.split("\n")
    lines[2] = f"tools = {json.dumps(list(tools))}"
    home.config.write_text(head + table + "\n".join(lines), "utf-8")


def delegating(home: Home, task: str = "count the lamps", **more: Any) -> None:
    home.model(
        {"calls": [{"name": "delegate", "arguments": {"task": task, "agent": "helper"} | more}]},
        {"text": "it says: {{op:delegate}}"},
    )
    parent_agent(home, "delegate")


def sessions(home: Home) -> list[str]:
    return sorted(each.name for each in home.sessions.iterdir())


def child_of(home: Home, run: str) -> str:
    """`SESSION/RUN` of the child that a run announced, as soon as it executes."""
    (announced, *_) = home.wait_for_event(run, "run.child_announced")
    child = f"{announced['payload']['sessionId']}/run-1"
    home.wait_for_event(child, "run.started")
    return child


def command_of(home: Home, run: str) -> int:
    """The process that the call of a run is."""

    def children() -> set[int]:
        found = set()
        for task in Path(f"/proc/{home.executor(run)}/task").iterdir():
            with suppress(OSError):  # a thread that has just ended
                found |= {int(pid) for pid in (task / "children").read_text().split()}
        return found

    (pid,) = until(children, "the process of the call")
    return pid


def test_a_cancel_that_comes_while_the_executor_hands_over_stops_children_too(home: Home, until: Until) -> None:
    # covers A43 A51
    kid = home.new()
    stubborn = f"trap 'echo >>\"{home.path}/asked\"' TERM; {home.gate('stubborn')}"
    (home.path / "stubborn.sh").write_text(stubborn)
    begin = f"{AGENTRUN} send {kid} sub --detach; setsid /bin/sh '{home.path}/stubborn.sh' >/dev/null 2>&1 &"
    home.tool("begin", begin)
    home.tool("work", home.gate(), retries=3)
    home.model(
        {"ifContains": "sub", "calls": [{"name": "work"}]},
        {"calls": [{"name": "begin"}]},
        {"calls": [{"name": "work"}]},
        {"text": "done"},
    )
    run = home.detach(home.new(), "go")
    home.at_gate(2)
    home.at_gate(name="stubborn")
    executor = home.executor(run)
    os.kill(executor, signal.SIGTERM)
    until((home.path / "asked").exists, "its ending what it began")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(f"{kid}/run-1") == "cancelled"
    assert home.marked() == []


# --- delegate


def test_a_delegated_task_is_a_run_of_its_own_and_its_report_is_the_result(home: Home) -> None:
    # covers B1
    helper(home, {"ifContains": "lamps", "text": "there are 12"})
    delegating(home)
    session = home.new()
    sent = home.run("send", session, "how many?")
    assert (sent.code, sent.text) == (0, "it says: there are 12\n")
    (other,) = [each for each in sessions(home) if each != session]
    document = json.loads((home.sessions / other / "session.json").read_bytes())
    assert (document["title"], document["agent"], document["forkedFrom"]) == ("count the lamps", "helper", None)
    parent = {"sessionId": session, "runId": "run-1", "operationId": "op-2"}
    assert home.messages(other)[0]["accept"]["parentRun"] == parent
    child = home.view(f"{other}/1")
    assert (child["status"], child["parentRun"]) == ("completed", parent)
    shown = home.run("show", f"{session}/1", "--json").docs[0]
    assert shown["children"] == [{"operationId": "op-2", "sessionId": other, "runId": "run-1", "status": "completed"}]
    (told,) = home.events(session, "tool.remote_id")
    assert told["payload"]["remoteId"] == f"{other}/run-1"
    assert f"child of op-2: {other}/run-1" in home.run("show", f"{session}/1").text
    assert f"child of {session}/run-1 (op-2)" in home.run("show", f"{other}/1").text


def test_a_child_that_fails_fails_the_call_and_nothing_else(home: Home) -> None:
    helper(home, {"ifContains": "nothing of this", "text": "never"})
    delegating(home)
    sent = home.run("send", home.new(), "how many?")
    assert sent.code == 0
    assert "This is not a result" in sent.text
    assert "failed" in sent.text


def test_an_agent_that_is_not_there_makes_no_session(home: Home) -> None:
    helper(home, {"text": "never"})
    delegating(home, agent="nobody")
    session = home.new()
    assert "no agent is called 'nobody'" in home.run("send", session, "x").text
    assert sessions(home) == [session]


def test_delegating_goes_only_so_deep(home: Home) -> None:
    helper(home, {"text": "never"})
    home.model(
        *[
            {"calls": [{"name": "delegate", "arguments": {"task": "go on", "agent": "analyst"}}]},
            {"text": "{{op:delegate}}"},
        ]
    )
    parent_agent(home, "delegate")
    text = home.config.read_text()
    home.config.write_text("max_depth = 2\n" + text, "utf-8")
    session = home.new()
    sent = home.run("send", session, "x")
    assert sent.code == 0
    assert "2 runs deep" in sent.text
    assert len(sessions(home)) == 3


def test_the_name_of_the_tool_is_taken(home: Home) -> None:
    home.tool("delegate", "true")
    refused = home.run("send", home.new(), "x")
    assert refused.code == 13
    assert "brings along" in refused.said


# --- stopped with the parent


@pytest.fixture
def family(home: Home, until: Until) -> tuple[str, str]:
    """A detached run that waits for a child, which is in a tool that takes its time to end."""
    ready = home.path / "ready"
    script = f"trap 'sleep 0.3; echo > {home.path}/ended; exit' TERM; touch {ready}; while :; do sleep 0.05; done"
    home.tool("work", script, grace="60s")
    helper(home, {"calls": [{"name": "work"}]}, {"text": "never"}, tools='["work"]')
    delegating(home)
    run = str(home.detach(home.new(), "x"))
    child = child_of(home, run)
    until(ready.exists, "the child's tool being ready")
    return run, child


def test_cancelling_the_parent_cancels_the_child_first_by_its_own_flow(home: Home, family: tuple[str, str]) -> None:
    # covers A45 A46 B30 B59
    run, child = family
    assert home.run("cancel", run, "--wait").code == 0
    assert (home.status(run), home.status(child)) == ("cancelled", "cancelled")
    (asked,) = home.events(child, "run.cancel_requested")
    assert (asked["payload"]["intent"], asked["payload"]["actor"]["run"]) == ("parent", run)
    (finished,) = home.events(child, "run.finished")
    (parents,) = home.events(run, "run.finished")
    assert finished["at"] <= parents["at"]
    # Its tool had its grace period: it was not killed as a stranger.
    assert (home.path / "ended").exists()
    assert home.marked() == []
    assert home.view(run)["unresolvedOperations"] == [], "what the child did is known"
    assert parents["payload"]["unresolvedOperations"] == []


def overdue_family(home: Home) -> tuple[str, str]:
    """As `family`, of a run whose time was used up once its child had begun: more of it on a slow machine."""
    for seconds in (1.5, 6, 24):
        run = str(home.detach(home.new(), "x", "--timeout", f"{seconds:g}s"))
        home.wait_for_status(run, "timed_out")
        for announced in home.events(run, "run.child_announced"):
            child = f"{announced['payload']['sessionId']}/run-1"
            if home.events(child, "run.started"):
                return run, child
    raise AssertionError("its child never began in time")


@pytest.mark.parametrize("way", ["deadline", "executor killed", "child's executor killed", "op", "sigterm"])
def test_whatever_ends_the_parent_ends_the_child(home: Home, family: tuple[str, str], way: str, until: Until) -> None:
    # covers A46 B30
    run, child = family
    if way == "deadline":
        assert home.run("cancel", run, "--wait").code == 0
        run, child = overdue_family(home)
    elif way == "executor killed":
        os.kill(home.executor(run), signal.SIGKILL)
        until(lambda: home.view(run)["executor"] == "lost", "the executor being gone")
        assert home.run("cancel", run, "--wait").code == 0
    elif way == "child's executor killed":
        os.kill(home.executor(child), signal.SIGKILL)
        # The call has failed; the run goes on without leaving its child behind.
        home.wait_for_status(run, "completed")
    elif way == "op":
        assert home.run("cancel", run, "--op", "op-2", "--wait").code == 0
        home.wait_for_status(run, "completed")
    else:
        os.kill(home.executor(run), signal.SIGTERM)
        home.wait_for_status(run, "reconciling")
    assert home.status(child) == "cancelled"
    assert home.marked() == []


@pytest.fixture
def asking_family(home: Home) -> tuple[str, str]:
    """A detached run that waits for a child, which waits for the user: a child that nobody executes."""
    helper(home, {"ask": "which lamps?"}, {"text": "never"})
    delegating(home)
    run = str(home.detach(home.new(), "x"))
    child = child_of(home, run)
    home.wait_for_status(child, "waiting_input")
    return run, child


@pytest.mark.parametrize("way", ["op", "cancel", "command killed"])
@pytest.mark.parametrize("kin", ["family", "asking_family"])
def test_what_a_child_did_is_known_once_it_is_over(
    home: Home, way: str, kin: str, request: pytest.FixtureRequest
) -> None:
    # covers A52
    run, child = request.getfixturevalue(kin)
    if way == "op":
        assert home.run("cancel", run, "--op", "op-2", "--wait").code == 0
    elif way == "cancel":
        assert home.run("cancel", run, "--wait").code == 0
    else:
        os.kill(command_of(home, run), signal.SIGKILL)
    assert home.wait_for_status(run, "completed", "cancelled")
    assert home.status(child) == "cancelled"
    assert home.view(run)["unresolvedOperations"] == []
    (finished,) = home.events(run, "run.finished")
    assert finished["payload"]["unresolvedOperations"] == []


@pytest.fixture
def unsure(home: Home, until: Until) -> tuple[str, str]:
    """A cancelled run whose child was cancelled in the middle of a write: so nobody knows what either did."""
    helper(home, {"calls": [{"name": "export"}]}, {"text": "never"}, tools='["export"]')
    home.tool("export", f"touch {home.path}/ready; {home.gate('never')}", effect="write", approve="auto")
    delegating(home)
    run = str(home.detach(home.new(), "x"))
    child = child_of(home, run)
    until((home.path / "ready").exists, "the child's write")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.view(run)["unresolvedOperations"] != []
    return run, child


def test_what_is_said_of_a_child_afterwards_settles_the_call_that_began_it(
    home: Home, unsure: tuple[str, str], until: Until
) -> None:
    # covers A35 A52
    run, child = unsure
    assert home.run("reconcile", run).text.count("delegate") == 1, "as long as the child's is open"
    home.config.write_text("# gone\n", "utf-8")
    assert home.run("reconcile", child, "op-2", "--as", "failed").code == 0
    assert home.view(run)["unresolvedOperations"] == []
    (late,) = home.events(run, "operation.late_result")
    assert (late["payload"]["status"], late["payload"]["evidence"]) == (
        "cancelled",
        f"its run {child} ended as cancelled",
    )
    assert "unresolved" not in home.run("ls").text


def test_the_parent_tells_what_its_child_says_by_now_and_records_it_when_it_is_asked(
    home: Home, unsure: tuple[str, str]
) -> None:
    """As where the parent could not be written when its child was settled."""
    # covers A35 A52
    run, child = unsure
    tree = Tree(str(home.root), home.session_dir(run).parent.parent.name)
    session = tree.session(child.partition("/")[0])
    reconcile(session, session.run("run-1"), "op-2", OperationStatus.SUCCEEDED, None)
    before = (home.run_dir(run) / "operations.jsonl").read_bytes()
    shown = home.run("show", run, "--json").docs[0]
    assert shown["run"]["unresolvedOperations"] == []
    assert "unresolved" not in home.run("show", run).text
    assert (home.run_dir(run) / "operations.jsonl").read_bytes() == before, "who looks writes nothing"
    asked = home.run("reconcile", run)
    assert (asked.code, asked.text) == (0, "")
    assert "nothing of" in asked.said
    assert json.loads((home.run_dir(run) / "run.json").read_bytes())["unresolvedOperations"] == []


def test_a_child_of_a_child_ends_too(home: Home, until: Until) -> None:
    # covers B30
    home.tool("work", f"touch {home.path}/ready; sleep 600 & wait")
    home.model(
        {"ifContains": "first", "calls": [{"name": "delegate", "arguments": {"task": "second", "agent": "analyst"}}]},
        {"ifContains": "second", "calls": [{"name": "delegate", "arguments": {"task": "third", "agent": "analyst"}}]},
        {"ifContains": "third", "calls": [{"name": "work"}]},
    )
    parent_agent(home, "delegate", "work")
    run = str(home.detach(home.new(), "first"))
    child = child_of(home, run)
    grandchild = child_of(home, child)
    until((home.path / "ready").exists, "the tool of the third")
    assert home.run("cancel", run, "--wait").code == 0
    assert [home.status(each) for each in (run, child, grandchild)] == ["cancelled"] * 3
    assert home.marked() == []


# --- any send in a tool


def sending(home: Home, command: str) -> str:
    """A session whose agent types `command` in a tool; `$other` is another session."""
    other = home.new("other")
    home.tool("ask", f'other={other}; agentrun() {{ {AGENTRUN} "$@"; }}; {command}')
    home.model(
        {"ifContains": "go", "calls": [{"name": "ask"}]},
        {"ifContains": "go", "text": "{{op:ask}}"},
        {"ifContains": "elsewhere", "calls": [{"name": "wait"}]},
        {"ifContains": "elsewhere", "text": "done elsewhere"},
    )
    home.tool("wait", f"touch {home.path}/ready; {home.gate()}")
    return other


def test_a_send_in_a_tool_begins_a_child(home: Home) -> None:
    other = sending(home, "agentrun send $other elsewhere")
    home.open_gate()
    session = home.new()
    sent = home.run("send", session, "go")
    assert (sent.code, sent.text) == (0, "done elsewhere\n")
    assert home.view(f"{other}/1")["parentRun"] == {"sessionId": session, "runId": "run-1", "operationId": "op-2"}


def test_a_detached_child_of_a_tool_that_ended_is_found_and_stopped(home: Home, until: Until) -> None:
    other = sending(home, f"agentrun send $other elsewhere --detach; {home.gate('never')}")
    run = home.detach(home.new(), "go")
    until((home.path / "ready").exists, "the child's tool")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(f"{other}/run-1") == "cancelled"
    (asked,) = home.events(f"{other}/run-1", "run.cancel_requested")
    assert asked["payload"]["intent"] == "parent"
    until(lambda: not home.marked(), "the child's executor, whose run is over, having left")


def test_a_detached_child_outlives_a_parent_that_completes(home: Home, until: Until) -> None:
    other = sending(home, "agentrun send $other elsewhere --detach")
    session = home.new()
    assert home.run("send", session, "go").code == 0
    until((home.path / "ready").exists, "the child's tool")
    assert home.status(f"{other}/run-1") == "running"
    home.open_gate()
    home.wait_for_status(f"{other}/run-1", "completed")


def test_stopping_a_run_leaves_an_executor_alone_that_its_tool_started_for_another(home: Home, until: Until) -> None:
    # covers A47
    other = home.new("other")
    home.tool("export", f"touch {home.path}/ready; {home.gate()}", effect="write", approve="ask")
    home.tool(
        "ask",
        f'agentrun() {{ {AGENTRUN} "$@"; }}; agentrun approve {other} > {home.path}/said 2>&1; {home.gate("never")}',
    )
    home.model(
        {"ifContains": "go", "calls": [{"name": "ask"}]},
        {"ifContains": "elsewhere", "calls": [{"name": "export"}]},
        {"ifContains": "elsewhere", "text": "done elsewhere"},
    )
    assert home.run("send", other, "elsewhere").code == 5
    run = home.detach(home.new(), "go")
    until((home.path / "ready").exists, "the other run's tool")
    assert home.run("cancel", run, "--wait").code == 0
    assert home.view(f"{other}/1")["status"] == "running"
    assert home.view(f"{other}/1")["executor"] == "alive"
    home.open_gate()
    home.wait_for_status(f"{other}/run-1", "completed")


@pytest.mark.parametrize("how", ["", "--mode steer", "--mode follow-up", "--mode steer --if-ended prompt"])
def test_a_run_does_not_wait_for_itself(home: Home, how: str) -> None:
    home.tool("ask", f'timeout 60 {AGENTRUN} send "$AGENTRUN_SESSION" elsewhere {how} 2>&1; echo "exit $?"')
    home.model({"calls": [{"name": "ask"}]}, {"text": "{{op:ask}}"})
    session = home.new()
    sent = home.run("send", session, "go")
    assert "exit 7" in sent.text
    assert "--detach" in sent.text
    assert [message["mode"] for message in home.messages(session)] == ["prompt", "report"]


def test_who_only_watches_its_own_run_is_refused_too(home: Home) -> None:
    wait = f'{AGENTRUN} wait "$AGENTRUN_SESSION/$AGENTRUN_RUN" 2>&1; echo "wait $?"'
    show = f'{AGENTRUN} show -f "$AGENTRUN_SESSION" 2>&1; echo "show $?"'
    # A run of the same session that is over is waited for in no time.
    past = f'{AGENTRUN} wait "$AGENTRUN_SESSION/1"; echo "past $?"'
    home.tool("ask", f"{wait}; {show}; {past}", timeout="80s")
    home.model(
        {"ifContains": "go", "calls": [{"name": "ask"}]}, {"ifContains": "go", "text": "{{op:ask}}"}, {"text": "x"}
    )
    session = home.new()
    home.run("send", session, "first")
    sent = home.run("send", session, "go")
    assert [word in sent.text for word in ("wait 7", "show 7", "past 0")] == [True] * 3, sent.text
    assert sent.text.count("it would wait for itself") == 2


@pytest.mark.parametrize("command", ["compact $other --detach", "resume $other/1 --detach"])
def test_a_compaction_and_a_linked_run_that_a_tool_begins_have_their_parent(
    home: Home, until: Until, command: str
) -> None:
    # covers B30
    other = sending(home, f"agentrun {command}; {home.gate('never')}")
    home.model({"text": "done"})
    home.run("send", other, "a first task")
    # The same prompt again, and the summary, take longer than any test waits.
    home.model({"ifContains": "begin it", "calls": [{"name": "ask"}]}, {"text": "so many words", "delayMs": 60_000})
    run = home.detach(home.new(), "begin it")
    child = f"{other}/run-2"
    home.wait_for_event(child, "model.request.started")
    session, _, run_id = run.partition("/")
    assert home.view(child)["parentRun"] == {"sessionId": session, "runId": run_id, "operationId": "op-2"}
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(child) == "cancelled"
    (asked,) = home.events(child, "run.cancel_requested")
    assert asked["payload"]["intent"] == "parent"
    until(lambda: not home.marked(), "the child's executor, whose run is over, having left")


def test_a_run_says_something_to_itself_if_it_does_not_wait(home: Home) -> None:
    home.tool("ask", f'{AGENTRUN} send "$AGENTRUN_SESSION" elsewhere --mode follow-up --detach 2>&1; echo "exit $?"')
    home.model({"calls": [{"name": "ask"}]}, {"text": "{{op:ask}}"}, {"ifContains": "elsewhere", "text": "heard"})
    session = home.new()
    assert home.run("send", session, "go").text == "heard\n"
    assert home.view(f"{session}/1")["children"] == []


@pytest.mark.parametrize("how", ["steer", "send --mode steer --detach"])
def test_a_steer_that_comes_too_late_begins_a_child_if_it_begins_a_run(home: Home, how: str, until: Until) -> None:
    other = sending(home, f"agentrun {how} $other elsewhere --if-ended prompt; {home.gate('never')}")
    session = home.new()
    run = str(home.detach(session, "go"))
    child = f"{other}/run-1"
    until((home.path / "ready").exists, "the child's tool")
    parent = {"sessionId": session, "runId": "run-1", "operationId": "op-2"}
    assert home.view(child)["parentRun"] == parent
    assert home.run("cancel", run, "--wait").code == 0
    assert home.status(child) == "cancelled"


@pytest.mark.parametrize(
    "lie", ["AGENTRUN_RUN=run-9", "AGENTRUN_SESSION=nosuch", "AGENTRUN_ACCOUNT=bob", "AGENTRUN_ROOT=/"]
)
def test_an_environment_that_the_tree_does_not_bear_out_is_no_parent(home: Home, lie: str) -> None:
    # covers A22 A23
    session, other = home.new(), home.new()
    home.model({"text": "done"})
    assert home.run("send", session, "x").code == 0
    env = {"AGENTRUN_ACCOUNT": home.sessions.parent.name, "AGENTRUN_SESSION": session}
    env |= {"AGENTRUN_RUN": "run-1", "AGENTRUN_OPERATION": "op-1"}
    name, _, value = lie.partition("=")
    root = str(home.root)
    sent = home.run("send", other, "x", "--root", root, env=env | {f"AGENTRUN_{name}": value})
    assert sent.code == 0, sent.said
    assert "as the parent" in sent.said
    assert home.view(f"{other}/1")["parentRun"] is None


def test_nothing_new_begins_in_a_run_that_is_to_stop(home: Home, until: Until) -> None:
    # covers A48 B29
    home.tool(
        "ask",
        f"trap '' TERM; touch {home.path}/ready; {home.gate()}; "
        f"{AGENTRUN} send {home.new('other')} x > {home.path}/said 2>&1",
        grace="600s",
    )
    home.model({"calls": [{"name": "ask"}]}, {"text": "never"})
    run = home.detach(home.new(), "go")
    until((home.path / "ready").exists, "the tool")
    assert home.run("cancel", run).code == 6
    home.open_gate()
    home.wait_for_status(run, "cancelled")
    assert "nothing new begins there" in (home.path / "said").read_text()
