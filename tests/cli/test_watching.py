"""`show` in its forms and `show -f`: everything once and in order, whoever looks, from wherever."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.fixture
def held(home: Home) -> str:
    """A run that has said and done something and is held in a tool."""
    home.tool("query", "echo 42")
    home.tool("wait", home.gate())
    home.model(
        {"text": "let me look", "calls": [{"name": "query"}]},
        {"text": "one moment", "calls": [{"name": "wait"}]},
        {"text": "the whole report"},
    )
    run = home.detach(home.new("a title"), "analyse")
    home.wait_for_event(run, "tool.started", 2)
    return str(run)


@pytest.fixture
def done(home: Home) -> str:
    """A run that is over, with a bit of everything."""
    home.tool("query", "echo 42")
    home.tool("broken", "echo oh no >&2; exit 3")
    home.model(
        {"text": "let me look", "calls": [{"name": "query"}, {"name": "broken"}]},
        {"text": "# The report\n\nIt is {{op:query}}.\n"},
    )
    session = home.new("a title")
    assert home.run("send", session, "analyse").code == 0
    return f"{session}/run-1"


# --- show


def test_show_says_the_same_in_a_pipe_and_on_a_terminal(home: Home, done: str) -> None:
    for name in (done, done.partition("/")[0]):
        piped = home.run("show", name)
        assert piped.code == 0
        assert b"\x1b" not in piped.out
        terminal = home.terminal("show", name)
        assert terminal.end() == 0
        assert COLOUR.search(terminal.raw)
        plain = COLOUR.sub(b"", terminal.raw).replace(b"\r\n", b"\n").decode()
        without_ages = re.compile(r"now|\d+[sm]( ago)?")
        assert without_ages.sub("AGE", plain) == without_ages.sub("AGE", piped.text)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
@pytest.mark.parametrize("arguments", [["show"], ["show", "-f"], ["ls"]])
def test_no_colour_where_none_is_wanted(home: Home, done: str, env: dict[str, str], arguments: list[str]) -> None:
    name = [] if arguments == ["ls"] else [done]
    terminal = home.terminal(*arguments, *name, env=env)
    assert terminal.end() == 0
    assert not COLOUR.search(terminal.raw)
    if env.get("TERM") == "dumb":
        assert b"\x1b" not in terminal.raw
    terminal = home.terminal(*arguments, *name, "--no-color")
    assert terminal.end() == 0
    assert not COLOUR.search(terminal.raw)


@pytest.mark.parametrize("columns", [20, 1, 300])
@pytest.mark.parametrize("arguments", [["show", "{run}"], ["show", "{session}"], ["ls"], ["show", "-f", "{run}"]])
def test_any_width_works(home: Home, done: str, columns: int, arguments: list[str]) -> None:
    named = [each.format(run=done, session=done.partition("/")[0]) for each in arguments]
    terminal = home.terminal(*named, columns=columns)
    assert terminal.end() == 0
    assert done.partition("/")[0] in terminal.text.replace("\n", "")


@pytest.mark.parametrize(
    "env",
    [{"LANG": "C"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_any_locale_works(home: Home, env: dict[str, str]) -> None:
    home.model({"text": "Größe: 直播 🎉"})
    session = home.new("直播复盘")
    sent = home.run("send", session, "Frage – 为什么", env=env)
    assert (sent.code, sent.text) == (0, "Größe: 直播 🎉\n")
    assert home.messages(session)[0]["text"] == "Frage – 为什么"
    for arguments in (["show", session], ["show", f"{session}/1"], ["ls"], ["show", session, "--messages"]):
        assert home.run(*arguments, env=env).code == 0
        terminal = home.terminal(*arguments, env=env)
        assert terminal.end() == 0
    terminal = home.terminal("send", session, "again", env=env)
    assert terminal.end() == 0


def test_a_terminal_that_is_ascii_is_sent_nothing_else(home: Home) -> None:
    home.model({"text": "Größe: 直播 🎉"})
    session = home.new("直播复盘")
    for arguments in (["send", session, "为什么"], ["show", session], ["show", f"{session}/1"], ["ls"]):
        terminal = home.terminal(*arguments, env={"PYTHONIOENCODING": "ascii"})
        assert terminal.end() == 0
        assert terminal.raw.isascii()


def test_the_parts_of_a_run(home: Home, done: str) -> None:
    session = done.partition("/")[0]
    report = (home.run_dir(done) / "report.md").read_bytes()
    assert report.startswith(b"# The report\n\nIt is 42.\n")
    assert b"op-3 broken: failed: exit 3: oh no" in report
    assert home.run("show", done, "--report").out == report
    assert home.run("show", session, "--report").out == report
    told = home.run("show", done).text.replace(session, "S")  # there may be a 42 in its name
    places = [
        told.index(words) for words in ("#1 prompt", "let me look", "query", "42", "broken", "oh no", "# The report")
    ]
    assert places == sorted(places)
    assert "exit 3" in told
    events = home.run("show", done, "--operations").text.splitlines()
    assert [line.split()[0] for line in events] == [str(event["seq"]) for event in home.events(done)]
    assert [line.split()[1] for line in events] == [event["type"] for event in home.events(done)]
    assert home.run("show", done, "--operations", "--since", "5", "--json").docs == home.events(done)[4:]
    assert len(home.run("show", done, "--operations", "--tail", "3", "--json").docs) == 3
    messages = home.run("show", session, "--messages").text
    assert messages.index("#1 user prompt") < messages.index("#2 assistant report")
    assert [doc["seq"] for doc in home.run("show", session, "--messages", "--since", "2", "--json").docs] == [2]
    assert [doc["seq"] for doc in home.run("show", session, "--messages", "--tail", "1", "--json").docs] == [2]


def test_a_part_of_a_run_and_what_is_left_out_is_said(home: Home, done: str) -> None:
    (calls,) = home.events(done, "tool.registered")[-1:]
    shown = home.run("show", done, "--tail", "2").text
    assert "2 earlier operations are left out: --tail 4" in shown
    assert ("op-2" in shown, "op-3" in shown, "op-4" in shown) == (False, True, True)
    later = home.run("show", done, "--since", str(calls["seq"])).text
    assert ("op-1" in later, "op-3" in later, "op-4" in later) == (False, True, True)
    session = done.partition("/")[0]
    home.run("send", session, "again")
    assert "1 older: --tail 2" in home.run("show", session, "--tail", "1").text


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--timeline", "--report"], "one after the other"),
        (["--messages", "--operations"], "one after the other"),
        (["--html", "x.html", "--messages"], "one after the other"),
        (["-f", "--timeline"], "one after the other"),
        (["--overwrite"], "it goes with: --html"),
        (["--raw"], "it goes with: --messages, --report"),
        (["--operations", "--raw"], "it goes with: --messages, --report"),
        (["--report", "--tail", "2"], "it goes with: --messages, --operations, --timeline"),
        (["--html", "x.html", "--since", "2"], "it goes with: -f, --messages, --operations"),
        (["-f", "--tail", "2"], "it goes with: --messages, --operations, --timeline"),
        (["--since", "2"], "--messages --since 2"),
    ],
)
def test_an_option_that_would_mean_nothing_is_refused(arguments: list[str], hint: str, home: Home) -> None:
    refused = home.run("show", home.new(), *arguments, cwd=home.path)
    assert refused.code == 2
    assert hint in refused.said
    assert not (home.path / "x.html").exists()


def test_a_run_without_a_report_says_so(home: Home, held: str) -> None:
    missing = home.run("show", held, "--report")
    assert (missing.code, missing.out) == (8, b"")
    assert "running" in missing.said


def test_ls_lists_the_newest_change_first_and_only_what_is_asked_for(home: Home) -> None:
    first, second = home.new("live stream one"), home.new("stock two")
    home.run("send", first, "x")
    home.model()
    home.run("send", second, "x")
    listed = home.run("ls").text.splitlines()
    assert [line.split()[0] for line in listed] == [second, first]
    assert [line.split()[0] for line in home.run("ls", "--status", "failed").text.splitlines()] == [second]
    assert [line.split()[0] for line in home.run("ls", "LIVE").text.splitlines()] == [first]
    assert [line.split()[0] for line in home.run("ls", "--limit", "1").text.splitlines()] == [second]
    assert home.run("ls", "--agent", "nobody").text == ""
    assert home.run("ls", "--archived").text == ""
    assert home.run("archive", first).code == 0
    assert [line.split()[0] for line in home.run("ls", "--archived").text.splitlines()] == [first]
    assert [line.split()[0] for line in home.run("ls", "--agent", "analyst").text.splitlines()] == [second]


# --- show -f


def test_a_viewer_that_joins_late_sees_everything_once_and_in_order(home: Home, held: str) -> None:
    watching = home.terminal("show", "-f", held)
    shown = watching.wait_for("wait")
    assert "let me look" in shown
    home.open_gate()
    assert watching.end() == 0
    told = ("#1 prompt", "op-1", "let me look", "op-2  query", "result: 42", "one moment", "op-4  wait", "completed")
    places = [watching.text.find(words) for words in told]
    assert -1 not in places, watching.text
    assert places == sorted(places)
    assert watching.text.count("the whole report") == 1
    assert watching.text.count("let me look") == 1


def test_viewers_that_come_at_any_time_see_the_same(home: Home, held: str) -> None:
    early = [home.start("show", "-f", held, "--json") for _ in range(2)]
    terminals = [home.terminal("show", "-f", held) for _ in range(2)]
    for terminal in terminals:
        terminal.wait_for("wait")
    home.open_gate()
    home.wait_for_status(held, "completed")
    late = home.start("show", "-f", held, "--json")
    stored = (home.run_dir(held) / "operations.jsonl").read_bytes()
    for viewer in (*early, late):
        seen = viewer.end()
        assert (seen.code, seen.out, seen.err) == (0, stored, b"")
    assert [terminal.end() for terminal in terminals] == [0, 0]
    since = home.run("show", "-f", held, "--json", "--since", "6")
    assert [doc["seq"] for doc in since.docs] == [event["seq"] for event in home.events(held)][5:]


def test_a_viewer_in_a_pipe_prints_the_report_alone(home: Home, held: str) -> None:
    watching = home.start("show", "-f", held)
    home.open_gate()
    seen = watching.end()
    assert (seen.code, seen.out) == (0, b"the whole report\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_a_viewer_that_is_ended_changes_nothing(home: Home, held: str, number: int) -> None:
    watching = home.terminal("show", "-f", held)
    watching.wait_for("wait")
    before = home.events(held)
    os.kill(watching.pid, number)
    assert watching.end() == 128 + number
    assert home.events(held) == before
    home.open_gate()
    home.wait_for_status(held, "completed")


def test_ctrl_c_of_a_joined_send_only_leaves(home: Home, held: str) -> None:
    joining = home.terminal("send", held, "and more?", "--mode", "steer")
    joining.wait_for("wait")
    joining.press_ctrl("c")
    assert joining.end() == 130
    assert f"{held} goes on; nothing was stopped" in joining.text
    assert f"stop it with: agentrun cancel {held}" in joining.text
    assert home.events(held, "run.cancel_requested") == []
    home.open_gate()
    home.wait_for_status(held, "completed", "failed")


def test_the_reader_of_a_viewer_may_go_and_the_viewer_goes_too(home: Home, held: str) -> None:
    piped = home.shell('agentrun show -f "$1" --json | head -n 1', held)
    assert json.loads(piped.out)["type"] == "run.accepted"
    home.open_gate()
    home.wait_for_status(held, "completed")


def test_a_live_view_keeps_up_with_a_terminal_that_changes_its_size(home: Home, held: str) -> None:
    watching = home.terminal("show", "-f", held, columns=100, rows=30)
    watching.wait_for("wait")
    for columns, rows in ((20, 5), (60, 3), (100, 30)):
        watching.resize(columns, rows)
        watching.columns = columns
    home.open_gate()
    assert watching.end() == 0


@pytest.mark.parametrize(
    ("how", "arguments"),
    [
        ("pipe", ["show", "-f", "{run}"]),
        ("pipe", ["show", "-f", "{run}", "--json"]),
        ("dumb", ["show", "-f", "{run}"]),
        ("terminal", ["show", "-f", "{run}"]),
    ],
)
@pytest.mark.exhaustive
@pytest.mark.timeout(180)
def test_an_idle_viewer_uses_no_measurable_cpu(
    home: Home, held: str, until: Until, how: str, arguments: list[str]
) -> None:
    named = [each.format(run=held) for each in arguments]
    if how == "pipe":
        viewer = home.start(*named)
    else:
        viewer = home.terminal(*named, env={"TERM": "dumb"} if how == "dumb" else {})
        viewer.wait_for("wait")

    def used() -> int:
        fields = Path(f"/proc/{viewer.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def has_settled() -> bool:
        before = used()
        time.sleep(1)
        return used() - before <= 1 < used()

    until(has_settled, "an end of what it does at its start", 90)
    before = used()
    time.sleep(3)
    # In hundredths of a second; a redrawn age and a look for safety each second cost less than one each.
    assert used() - before <= 3
    home.open_gate()
    viewer.end()


def test_the_draft_of_a_reply_is_seen_as_it_comes(home: Home) -> None:
    words = [f"word{number}" for number in range(60)]
    # Slower for a machine on which the viewer takes longer to come than the whole reply.
    for delay in (20, 200, 600):
        home.model({"text": " ".join(words), "delayMs": delay})
        session = home.new()
        run = home.detach(session, "analyse")
        watching = home.terminal("show", "-f", run)
        watching.wait_for("word1")
        if home.status(run) == "running":
            break
    assert home.status(run) == "running"
    draft = home.run_dir(run) / "report.draft.md"
    assert not (home.run_dir(run) / "report.md").exists()
    assert draft.read_text().startswith("word0")
    assert watching.end() == 0
    assert " ".join(words[:3]) in watching.text
    assert (home.run_dir(run) / "report.md").read_text() == " ".join(words)
