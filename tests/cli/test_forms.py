"""What each command prints where: data on standard output, all else on standard error, JSON where it is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]
ID = re.compile(r"session-[0-9a-z]+")
COMMANDS = ("new", "send", "steer", "approve", "deny", "cancel", "show", "ls")


# --- in a pipe


def test_new_prints_the_id_alone(home: Home) -> None:
    made = home.run("new", "last night's live stream")
    assert (made.code, made.err) == (0, b"")
    assert ID.fullmatch(made.text.removesuffix("\n"))


def test_new_takes_an_id_exactly(home: Home) -> None:
    assert home.run("new", "--id", "Live.stream_2-b").text == "Live.stream_2-b\n"


def test_new_with_a_prompt_prints_the_id_and_then_as_send(home: Home) -> None:
    made = home.run("new", "a title", "--send", "analyse")
    session, report = made.text.splitlines()
    assert (made.code, report) == (0, "a report")
    assert home.status(f"{session}/run-1") == "completed"


def test_send_prints_the_report_alone(home: Home) -> None:
    session = home.new()
    sent = home.run("send", session, "analyse")
    assert (sent.code, sent.out) == (0, b"a report\n")
    assert sent.said == f"accepted as prompt #1 of {session}/run-1 (queued)\n"


def test_a_report_gets_one_newline_at_its_end_and_none_more(home: Home) -> None:
    home.model({"text": "two\nlines\n"})
    assert home.run("send", home.new(), "analyse").out == b"two\nlines\n"


def test_send_of_a_run_that_fails_prints_nothing(home: Home) -> None:
    home.model()
    session = home.new()
    sent = home.run("send", session, "analyse")
    assert (sent.code, sent.out) == (1, b"")
    assert home.status(f"{session}/run-1") == "failed"


def test_send_detached_prints_the_run_alone(home: Home) -> None:
    session = home.new()
    sent = home.run("send", session, "analyse", "--detach")
    assert (sent.code, sent.text) == (0, f"{session}/run-1\n")
    assert sent.said == f"accepted as prompt #1 of {session}/run-1 (queued)\n"
    home.wait_for_status(f"{session}/run-1", "completed")


@pytest.mark.slow
def test_what_joins_a_run_prints_run_number_and_kind(home: Home, until: Until) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "the report of another"}, {"text": "and of follow-ups"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.at_gate()

    steered = home.run("steer", session, "only new products")
    assert (steered.code, steered.out, steered.err) == (0, f"{run} 2 steer\n".encode(), b"")
    detached = home.run("send", session, "and stock?", "--detach")
    assert (detached.code, detached.text) == (0, f"{run}\n")
    assert detached.said == f"accepted as follow-up #3 of {run} (running)\n"

    joining = home.start("send", session, "and traffic?")
    until(lambda: len(home.messages(session)) == 4, "the acceptance")
    home.open_gate()
    joined = joining.end()
    assert (joined.code, joined.text) == (0, f"{run} 4 follow-up\n")
    assert b"report" not in joined.out


@pytest.mark.slow
def test_cancel_says_how_the_run_stands(home: Home) -> None:
    home.model({"ask": "which?"})
    session = home.new()
    assert home.run("send", session, "analyse").code == 5
    cancelled = home.run("cancel", session, "--wait")
    assert (cancelled.code, cancelled.out) == (0, f"{session}/run-1 cancelled\n".encode())


def test_ls_of_an_empty_root_prints_nothing(home: Home) -> None:
    listed = home.run("ls")
    assert (listed.code, listed.out, listed.err) == (0, b"", b"")
    assert not home.root.exists()


# --- JSON


def test_send_json_is_the_acceptance_and_then_the_events_as_stored(home: Home) -> None:
    session = home.new()
    sent = home.run("send", session, "analyse", "--json")
    assert (sent.code, sent.err) == (0, b"")
    first, *events = sent.out.splitlines(keepends=True)
    assert json.loads(first) == {
        "type": "accepted",
        "sessionId": session,
        "runId": "run-1",
        "messageSeq": 1,
        "mode": "prompt",
    }
    assert b"".join(events) == (home.run_dir(session) / "operations.jsonl").read_bytes()


@pytest.mark.slow
def test_json_of_each_other_command(home: Home) -> None:
    session = home.new()
    (made,) = home.run("new", "a title", "--json").docs
    assert made["session"]["title"] == "a title"
    (sent,) = home.run("send", session, "analyse", "--detach", "--json").docs
    assert (sent["type"], sent["runId"], sent["mode"]) == ("accepted", "run-1", "prompt")
    home.wait_for_status(f"{session}/run-1", "completed")
    (shown,) = home.run("show", session, "--json").docs
    assert set(shown) == {"session", "runs"}
    assert [run["runId"] for run in shown["runs"]] == ["run-1"]
    (run,) = home.run("show", f"{session}/1", "--json").docs
    assert {"run", "operations", "messages", "report"} <= set(run)
    assert run["operations"] == home.events(f"{session}/run-1")
    assert run["messages"] == home.messages(session)
    assert run["report"] == "a report"
    assert home.run("show", session, "--messages", "--json").docs == home.messages(session)
    assert home.run("show", session, "--operations", "--json").docs == home.events(f"{session}/run-1")
    (report,) = home.run("show", session, "--report", "--json").docs
    assert report["report"] == "a report"
    rows = home.run("ls", "--json").docs
    assert [row["session"]["sessionId"] for row in rows] == [session, made["session"]["sessionId"]]
    assert [row["run"] and row["run"]["status"] for row in rows] == ["completed", None]


@pytest.mark.slow
def test_json_of_input_and_of_cancel(home: Home) -> None:
    home.model({"ask": "which?"})
    session = home.new()
    assert home.run("send", session, "analyse", "--json").code == 5
    (steered,) = home.run("steer", session, "only new ones", "--json").docs
    assert (steered["type"], steered["messageSeq"], steered["mode"]) == ("accepted", 3, "steer")
    cancelled = home.run("cancel", session, "--wait", "--json")
    assert (cancelled.code, cancelled.err) == (0, b"")
    assert cancelled.docs[0]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["show", "nothing-there"], 8, "not_found"),
        (["show", "../etc"], 9, "denied"),
        (["send", "{session}"], 2, "usage"),
        (["send", "{session}", "x", "--no-such-option"], 2, "usage"),
        (["nonsense"], 2, "usage"),
        (["cancel", "{session}"], 8, "not_found"),
        (["steer", "{session}", "x"], 7, "conflict"),
        (["send", "{session}", "x", "--agent", "nobody"], 13, "config"),
    ],
)
def test_an_error_is_one_line_of_json_on_standard_error(home: Home, arguments: list[str], code: int, word: str) -> None:
    session = home.new()
    failed = home.run(*(each.format(session=session) for each in arguments), "--json")
    assert (failed.code, failed.out) == (code, b"")
    assert failed.error["code"] == word
    assert failed.error["message"]
    assert {"sessionId", "runId"} <= set(failed.error)


def test_nothing_is_a_document_of_json_about_nothing(home: Home) -> None:
    assert home.run("ls", "--json").out == b""


# --- the common options


@pytest.mark.parametrize("before", [True, False])
def test_the_common_options_work_before_and_after_the_command(home: Home, before: bool) -> None:
    other = home.path / "other"
    common = ["--root", str(other), "--config", str(home.config), "--account", "ann", "--json", "--no-color"]
    command = ["new", "a title"]
    made = home.run(*(common + command if before else command + common))
    assert made.docs[0]["session"]["title"] == "a title"
    assert [path.name for path in (other / "accounts").iterdir()] == ["ann"]
    assert not home.root.exists()


def test_the_common_options_take_an_equals_sign(home: Home) -> None:
    other = home.path / "other"
    assert home.run("new", f"--root={other}").code == 0
    assert other.exists()


@pytest.mark.parametrize("option", ["--root", "--config", "--account"])
def test_a_common_option_without_its_value_is_wrong_usage(home: Home, option: str) -> None:
    failed = home.run("ls", option)
    assert (failed.code, failed.out) == (2, b"")
    assert option in failed.said


def test_what_stands_behind_two_dashes_is_text(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "--", "--json").out == b"a report\n"
    assert home.messages(session)[0]["text"] == "--json"


# --- help


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example(home: Home, command: str) -> None:
    helped = home.run(command, "--help")
    assert (helped.code, helped.err) == (0, b"")
    assert re.search(rf"^\s+(.*\| |id=\$\()?agentrun {command}\b", helped.text, re.MULTILINE)


def test_the_general_help_names_each_command_and_each_exit_code(home: Home) -> None:
    helped = home.run("--help").text
    for command in COMMANDS:
        assert re.search(rf"^  {command}\b", helped, re.MULTILINE)
    for code in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 70, 124):
        assert re.search(rf"^\s+{code}  \w+", helped, re.MULTILINE)
    assert home.run("-h").text == helped


def test_the_version_is_data(home: Home) -> None:
    assert re.fullmatch(r"agentrun \d+\.\d+\S*\n", home.run("--version").text)


# --- on a terminal


@pytest.mark.slow
def test_a_run_on_a_terminal_is_told_in_order_and_says_how_to_go_on(home: Home) -> None:
    home.tool("query", "echo 42")
    home.model({"text": "let me look", "calls": [{"name": "query"}]}, {"text": "it is {{op:query}}"})
    session = home.new()
    terminal = home.terminal("send", session, "how much?")
    assert terminal.end() == 0
    told = [
        f"accepted as prompt #1 of {session}/run-1",
        "#1 prompt  delivered (turn-1)",
        "how much?",
        "op-1  model scripted:script.json",
        "let me look",
        "op-2  query",
        "result: 42",
        "op-3  model",
        f"{session}/run-1  ✓ completed",
        "it is 42",
        f'go on with: agentrun send {session} "..."',
    ]
    places = [terminal.text.find(words) for words in told]
    assert -1 not in places, terminal.text
    assert places == sorted(places), terminal.text
    assert terminal.text.count("it is 42") == 1


@pytest.mark.slow
def test_on_a_terminal_what_is_accepted_is_said_in_words(home: Home) -> None:
    home.model({"ask": "which?"}, {"text": "thanks"})
    session = home.new()
    run = home.detach(session, "analyse")
    home.wait_for_status(run, "waiting_input")
    steered = home.terminal("steer", session, "only new ones")
    assert steered.end() == 0
    assert f"accepted as steer #3 of {run}" in steered.text
    detached = home.terminal("send", session, "those of May", "--detach")
    assert detached.end() == 0
    assert detached.lines[0] == run
    assert f"agentrun show -f {run}" in detached.text
    home.wait_for_status(run, "completed")


def test_json_on_a_terminal_is_json(home: Home) -> None:
    session = home.new("タイトル \u202e title")
    terminal = home.terminal("ls", "--json", columns=2000)
    assert terminal.end() == 0
    (row,) = [json.loads(line) for line in terminal.raw.splitlines()]
    assert row["session"] == json.loads((home.session_dir(session) / "session.json").read_bytes())
