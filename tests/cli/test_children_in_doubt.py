"""What is told of a delegated task whose run cannot tell how it ended: never that nothing happened.

# covers A35 A49 A60, promise 11
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agentrun.commands.reconcile import reconcile
from agentrun.states import OperationStatus
from agentrun.store.tree import Tree
from tests.cli.conftest import until

Home = Any

pytestmark = pytest.mark.slow

UNKNOWN, CONFLICT = "unknown", 7


@pytest.fixture
def family(home: Home) -> tuple[str, str]:
    """A detached run that waits for a child, which writes, and waits at the gate in the middle of that."""
    (home.path / "helper.json").write_text(json.dumps({"turns": [{"calls": [{"name": "write"}]}, {"text": "done"}]}))
    home.tool("write", f"echo x >> {home.path}/effects; {home.gate()}", effect="write", approve="auto")
    home.settings(
        top='default_agent = "analyst"\n[agents.helper]\nmodel = "scripted:helper.json"\ntools = ["write"]\n',
    )
    home.model({"calls": [{"name": "delegate", "arguments": {"task": "write", "agent": "helper"}}]}, {"text": "so"})
    # The usual agent has all of its tools, and `delegate` is none of a table.
    helper, table, analyst = home.config.read_text().partition("[agents.analyst]")
    home.config.write_text(helper + table + analyst.replace('tools = ["write"]', 'tools = ["delegate"]', 1), "utf-8")
    run = str(home.detach(home.new(), "x"))
    (announced, *_) = home.wait_for_event(run, "run.child_announced")
    home.at_gate()
    return run, f"{announced['payload']['sessionId']}/run-1"


@pytest.fixture
def orphan(home: Home, family: tuple[str, str]) -> tuple[str, str]:
    """The same; the child has completed, and the run has lost its executor before that heard of it."""
    run, child = family
    executor = home.executor(run)
    home.suspend(run, executor)
    home.open_gate()
    home.wait_for_status(child, "completed")
    os.kill(executor, signal.SIGKILL)
    until(lambda: home.view(run)["executor"] == "lost", "the executor being gone")
    until(lambda: home.view(child)["executor"] == "none" and not home.marked(child.partition("/")[0]), "the child's")
    return run, child


def call_of(home: Home, run: str) -> dict[str, Any]:
    operations = home.run("reconcile", run, "--json").docs
    (call,) = [each for each in operations if each["operationId"] == "op-2"]
    return dict(call)


def test_a_child_is_not_removed_before_its_end_is_known_to_the_run_that_began_it(
    home: Home, orphan: tuple[str, str]
) -> None:
    run, child = orphan
    session = child.partition("/")[0]
    refused = home.run("rm", session, "--yes")
    assert refused.code == CONFLICT
    assert run in refused.said
    assert "agentrun recover" in refused.said
    assert home.run("recover").code == 0
    assert home.wait_for_status(run, "completed")
    (settled,) = home.events(run, "operation.reconciled")
    assert settled["payload"]["status"] == "succeeded"
    assert home.run("rm", session, "--yes").code == 0


@pytest.mark.parametrize("way", ["removed", "lost from the disk", "in the way"])
def test_of_a_child_that_is_gone_nobody_says_that_it_did_nothing(home: Home, orphan: tuple[str, str], way: str) -> None:
    run, child = orphan
    directory: Path = home.session_dir(child)
    if way == "removed":
        assert home.run("rm", directory.name, "--yes", "--force").code == 0
    else:
        shutil.rmtree(directory)
        if way == "in the way":
            directory.symlink_to(home.path)
    assert home.run("recover").code == 6
    assert call_of(home, run)["status"] == UNKNOWN


def test_a_child_whose_executor_cannot_store_what_happened_leaves_its_call_unresolved(
    home: Home, family: tuple[str, str]
) -> None:
    run, child = family
    # Its disk takes nothing more.
    resource.prlimit(home.executor(child), resource.RLIMIT_FSIZE, (1, 1))
    home.open_gate()
    home.wait_for_status(run, "completed")
    assert home.wait_for_status(child, "cancelled")
    for each in (child, run):
        assert [operation["operationId"] for operation in home.view(each)["unresolvedOperations"]] == ["op-2"]
    tree = Tree(str(home.root), home.session_dir(run).parent.parent.name)
    session = tree.session(child.partition("/")[0])
    reconcile(session, session.run("run-1"), "op-2", OperationStatus.SUCCEEDED, None)
    assert home.view(run)["unresolvedOperations"] == []
