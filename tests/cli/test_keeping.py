"""Rename, archive, fork and remove sessions from the command line: in pipes, at a terminal, two at once.

# covers A8 A11 A16 A19 A28 A42 A44 A64 A65 A68 A70 A71 A75 B41 B43
"""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Home = Any


def test_a_session_gets_another_title(home: Home) -> None:
    session = home.new("week 12")
    done = home.run("rename", session, "week 13\u202e")
    assert (done.code, done.out, done.err) == (0, b"", b"")
    named = home.run("rename", session, "week 14", "--json")
    assert (named.docs[0]["session"]["title"], named.docs[0]["session"]["revision"]) == ("week 14", 3)
    assert json.loads((home.session_dir(session) / "session.json").read_bytes())["title"] == "week 14"
    assert "week 14" in home.run("ls").text


def test_of_two_windows_the_second_learns_of_the_first(home: Home) -> None:
    session = home.new("week 12")
    shown = home.shell('agentrun show "$1" --json | jq .session.revision', session).text.strip()
    assert home.run("rename", session, "from the phone", "--expect-revision", shown).code == 0
    late = home.run("rename", session, "from the computer", "--expect-revision", shown, "--json")
    assert (late.code, late.out) == (7, b"")
    assert (late.error["code"], late.error["sessionId"]) == ("conflict", session)
    assert home.run("ls", "--json").docs[0]["session"]["title"] == "from the phone"


def test_what_is_archived_is_listed_apart_and_can_be_used(home: Home) -> None:
    put_away, other = home.new("old"), home.new("new")
    assert home.run("archive", put_away).code == 0
    assert [row["session"]["sessionId"] for row in home.run("ls", "--json").docs] == [other]
    assert [row["session"]["sessionId"] for row in home.run("ls", "--archived", "--json").docs] == [put_away]
    sent = home.run("send", put_away, "go")
    assert (sent.code, sent.text) == (0, "a report\n")
    shown = home.run("show", put_away, "--json").docs[0]
    assert (shown["session"]["archived"], shown["runs"][0]["status"]) == (True, "completed")
    assert home.run("unarchive", put_away).code == 0
    assert home.run("ls", "--archived", "--json").docs == []


def test_archiving_stops_nothing_and_says_what_goes_on(home: Home) -> None:
    home.tool("slow", f"{home.gate()}; echo done")
    home.model({"calls": [{"name": "slow"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "go")
    home.wait_for_event(run, "tool.started")
    archived = home.run("archive", session)
    assert archived.code == 0
    assert f"agentrun cancel {run}" in archived.said
    assert home.view(run)["status"] == "running"
    home.open_gate()
    home.wait_for_status(run, "completed")


def test_a_terminal_is_told_that_a_session_is_archived(home: Home) -> None:
    session = home.new()
    home.run("archive", session)
    terminal = home.terminal("send", session, "go")
    assert terminal.end() == 0
    assert f"agentrun unarchive {session}" in terminal.text


def test_a_fork_goes_on_from_a_prefix_and_the_source_from_its_end(home: Home) -> None:
    session = home.new("figures")
    for text in ("one", "two"):
        assert home.run("send", session, text).code == 0
    forked = home.run("fork", session, "--at", "2")
    assert forked.code == 0
    fork = forked.text.strip()
    before = home.messages(session)
    assert home.run("send", fork, "three", "--ref", "run-1").code == 8  # its own run-1 is not there yet
    assert home.run("send", fork, "three").code == 0
    assert [each["text"] for each in home.messages(fork)] == ["one", "a report", "three", "a report"]
    assert home.messages(session) == before
    shown = home.run("show", fork).text
    assert f"forked from {session} at #2" in shown
    told = home.run("show", fork, "--messages").text
    assert told.count(f"{session}/run-1") == 2
    assert [each["runId"] for each in home.run("show", fork, "--messages", "--json").docs] == ["run-1"] * 4
    assert home.run("send", fork, "four", "--ref", "run-1").code == 0


def test_a_fork_of_a_session_at_work_says_what_it_left_out(home: Home) -> None:
    home.tool("slow", home.gate())
    home.model({"calls": [{"name": "slow"}]}, {"text": "a report"})
    session = home.new()
    home.wait_for_event(home.detach(session, "go"), "tool.started")
    forked = home.run("fork", session)
    assert "the first 0 messages" in forked.said
    assert home.messages(forked.text.strip()) == []
    asked = home.run("fork", session, "--at", "1", "--json")
    assert asked.err == b""
    assert asked.docs[0]["session"]["forkedFrom"] == {"sessionId": session, "seq": 1}
    assert home.run("fork", session, "--at", "9").code == 8
    home.open_gate()


def test_a_session_is_removed_once_somebody_said_so(home: Home) -> None:
    session = home.new("old figures")
    assert home.run("send", session, "go").code == 0
    unasked = home.run("rm", session)
    assert (unasked.code, unasked.out) == (2, b"")
    assert f"agentrun rm {session} --yes" in unasked.said
    assert home.session_dir(session).exists()
    done = home.run("rm", session, "--yes")
    assert (done.code, done.out, done.err) == (0, b"", b"")
    assert list(home.sessions.iterdir()) == []
    assert home.run("show", session).code == 8
    assert home.run("rm", session, "--yes").code == 8
    assert home.run("ls", "--json").docs == []


@pytest.mark.parametrize(("answer", "is_removed"), [("n\n", False), ("\n", False), ("\x04", False), ("y\n", True)])
def test_a_terminal_is_asked(home: Home, answer: str, is_removed: bool) -> None:
    session = home.new("old\x1b[31m figures")
    terminal = home.terminal("rm", session)
    asked = terminal.wait_for("[y/N]")
    assert "0 messages and 0 runs" in asked.replace("\n", "")
    terminal.type(answer)
    assert terminal.end() == 0
    assert home.session_dir(session).exists() is not is_removed
    assert ("is removed" if is_removed else "nothing was removed") in terminal.text
    assert b"\x1b[31m figures" not in terminal.raw


def test_removing_stops_nothing_so_it_is_refused(home: Home) -> None:
    home.tool("slow", home.gate())
    home.model({"calls": [{"name": "slow"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "go")
    home.wait_for_event(run, "tool.started")
    refused = home.run("rm", session, "--yes", "--force", "--json")
    assert (refused.code, refused.out) == (7, b"")
    assert (refused.error["code"], refused.error["runId"]) == ("conflict", "run-1")
    assert f"agentrun cancel {run} --wait" in refused.error["hint"]
    assert home.view(run)["status"] == "running"
    assert home.run("cancel", run, "--wait").code == 0
    assert home.run("rm", session, "--yes", "--json").docs == [{"removed": session}]


def test_unresolved_operations_are_given_up_only_by_name(home: Home) -> None:
    home.tool("export", home.gate(), effect="write", approve="auto")
    home.model({"calls": [{"name": "export"}]}, {"text": "a report"})
    session = home.new()
    run = home.detach(session, "go")
    home.at_gate()
    assert home.run("cancel", run, "--wait").code == 0
    refused = home.run("rm", session, "--yes")
    assert refused.code == 7
    assert "op-2 export" in refused.said
    assert f"agentrun reconcile {run}" in refused.said
    assert f"agentrun rm {session} --force" in refused.said
    assert home.run("rm", session, "--yes", "--force").code == 0


@pytest.mark.parametrize("command", [("rename", "x"), ("archive",), ("unarchive",), ("fork",), ("rm", "--yes")])
def test_a_run_is_no_session(home: Home, command: tuple[str, ...]) -> None:
    session = home.new()
    assert home.run("send", session, "go").code == 0
    refused = home.run(command[0], f"{session}/1", *command[1:])
    assert refused.code == 2
    assert session in refused.said
    assert home.run(command[0], "nowhere", *command[1:]).code == 8
