"""What a crash leaves of a slot misleads no command: neither those who look, nor those who stop or begin something."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from agentrun.store.inbox import Order
from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any

pytestmark = pytest.mark.slow


def accept(home: Home, count: int) -> str:
    """A session with so many runs that were accepted, and that nobody drives."""
    name = str(home.new("--id", "s"))
    session = Tree(str(home.root), home.session_dir(name).parent.parent.name).session(name)
    config = {"path": str(home.config), "sha256": hashlib.sha256(home.config.read_bytes()).hexdigest()}
    for _ in range(count):
        trees.accept(session, order=Order(agent="analyst", config=config))
    return name


# covers A47 B5
def test_what_is_said_of_the_session_goes_to_the_run_whose_turn_it_is(home: Home) -> None:
    name = accept(home, 3)
    # As after a kill between the slot that is freed and the next run that is given it.
    (home.session_dir(name) / "active").unlink()
    assert home.run("wait", name, "--timeout", "0.01s").text == "s/run-1 queued\n"
    foreseen = home.run("recover", "--dry-run").text
    assert foreseen == "s/run-1 would be started: it is its turn and nobody drives it\n"
    stopped = home.run("cancel", name)
    assert (stopped.code, stopped.text) == (0, "s/run-1 cancelled\n")


# covers A32 A58
def test_a_run_whose_directory_did_not_last_is_taken_up_by_recover(home: Home, until: Callable[..., Any]) -> None:
    name = accept(home, 1)
    # The prompt and the slot are durable when it is acknowledged; its directory is so once the run is claimed.
    shutil.rmtree(home.run_dir(name))
    done = home.run("recover")
    assert (done.code, done.said) == (0, "")
    assert "s/run-1 is started" in done.text
    until(lambda: home.status(name) == "completed", "the end of the run")


# covers B5
def test_a_slot_that_names_no_run_keeps_nobody_out(home: Home) -> None:
    name = accept(home, 0)
    (home.session_dir(name) / "active").write_text("run-7\n")
    sent = home.run("send", name, "go")
    assert (sent.code, sent.text) == (0, "a report\n")
