"""`ls`: on a terminal by what it asks of the user, in a pipe flat.

covers A21 A22: a list has the sessions of its account alone.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from agentrun.records.views import GROUP_OF
from agentrun.states import RunStatus
from tests.cli.conftest import Home, until

pytestmark = pytest.mark.slow


def _sessions_of_each_kind(home: Home) -> dict[str, str]:
    """One each that is done, has no run, runs, waits for the user, and has lost its executor."""
    home.tool("wait", home.gate())
    home.model(
        {"ifContains": "ask", "ask": "which week?"},
        {"ifContains": "wait", "text": "a moment", "calls": [{"name": "wait"}]},
        {"text": "done"},
    )
    named = {kind: home.new(kind) for kind in ("finished", "empty", "busy", "asking", "gone")}
    assert home.run("send", named["finished"], "hello").code == 0
    asking = home.detach(named["asking"], "ask me")
    home.wait_for_status(asking, "waiting_input")
    for kind in ("busy", "gone"):
        home.detach(named[kind], "wait")
    home.at_gate(2)
    os.kill(home.executor(named["gone"] + "/run-1"), signal.SIGKILL)
    until(lambda: home.view(named["gone"] + "/run-1")["executor"] == "lost", "its executor has gone")
    return named


def test_every_status_has_a_group() -> None:
    assert set(GROUP_OF) == set(RunStatus)


def test_a_terminal_shows_what_needs_the_user_first(home: Home) -> None:
    """case: an executor killed with -9 is in the first group, whatever the file says."""
    named = _sessions_of_each_kind(home)
    terminal = home.terminal("ls", "--no-color")
    assert terminal.end() == 0
    kinds = {session: kind for kind, session in named.items()}
    *lines, hint = terminal.text.rstrip("\n").split("\n")
    assert hint == "agentrun: take up what has lost its executor with: agentrun recover"
    shown = [kinds.get(line.split()[0], line) if line else "" for line in lines]
    first, second, third = (part.split("\n") for part in "\n".join(shown).split("\n\n"))
    assert (first[0], set(first[1:])) == ("needs you", {"asking", "gone"})
    assert second == ["running", "busy"]
    assert (third[0], set(third[1:])) == ("done", {"finished", "empty"})
    home.open_gate()


def test_a_pipe_has_the_flat_list_newest_first(home: Home) -> None:
    ids = [home.new(title) for title in ("one", "two")]
    listed = home.run("ls")
    assert [line.split()[0] for line in listed.text.splitlines()] == ids[::-1]
    assert [doc["session"]["sessionId"] for doc in home.run("ls", "--json").docs] == ids[::-1]
    terminal = home.terminal("ls", columns=20)
    assert terminal.end() == 0
    assert all(session in terminal.raw.decode() for session in ids)


def test_another_account_is_not_listed(home: Home) -> None:
    home.new("mine")
    assert home.run("ls", "--account", "somebody").out == b""


# --- ls --watch


def test_a_terminal_is_drawn_again_when_something_changes(home: Home) -> None:
    """A new session, a run that begins and ends, a new title, an executor killed with -9: all without a key."""
    home.tool("wait", home.gate())
    home.model({"text": "a moment", "calls": [{"name": "wait"}]}, {"text": "done"})
    terminal = home.terminal("ls", "--watch")
    terminal.wait_for("no sessions")
    session = home.new("first title")
    terminal.wait_for("first title")
    run = home.detach(session, "hello")
    terminal.wait_for("running\n")
    assert home.run("rename", session, "second title").code == 0
    terminal.wait_for("second title")
    os.kill(home.executor(run), signal.SIGKILL)
    terminal.wait_for("executor lost")
    assert "needs you" in terminal.text
    assert terminal.text.count(session) == 1
    terminal.press_ctrl("c")
    assert terminal.end() == 130
    assert terminal.text.count(session) == 1


def test_a_narrow_screen_has_ids_that_are_whole(home: Home) -> None:
    """The terminal would cut an id and put its last character behind: that reads like one, and is none."""
    session = home.new("a title")
    terminal = home.terminal("ls", "--watch", columns=20)
    terminal.wait_for("no run")
    assert session in "".join(row.strip() for row in terminal.text.split("\n"))
    terminal.press_ctrl("c")
    assert terminal.end() == 130


def test_a_pipe_has_a_line_for_each_change(home: Home) -> None:
    session = home.new("first title")
    watching = home.start("ls", "--watch", "--json")
    assert watching.process.stdout is not None
    line = watching.process.stdout.readline
    first = json.loads(line())
    assert (first["session"]["title"], first["run"]) == ("first title", None)
    assert home.run("rename", session, "second title").code == 0
    assert json.loads(line())["session"]["title"] == "second title"
    assert home.run("send", session, "hello").code == 0
    while (json.loads(line())["run"] or {}).get("status") != "completed":
        pass
    watching.signal(signal.SIGINT)
    assert watching.end() == (130, b"", b"")


def test_a_watcher_whose_reader_left_ends_quietly(home: Home) -> None:
    home.new("a title")
    done = home.shell('{ agentrun ls --watch; echo "$?" >&2; } | head -n 1')
    assert (done.code, done.said) == (0, "0\n")
    assert "a title" in done.text
