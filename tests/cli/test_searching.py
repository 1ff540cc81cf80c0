"""`search`: where something was said, in a pipe, on a terminal, and in more than fits into memory.

covers A21 A22 A24: what is read is chosen by account and session in the program, in the order of seq.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.records.codec import encode_line
from tests.cli.conftest import Home

pytestmark = pytest.mark.slow
MEGABYTE = 1 << 20


def _say(home: Home, session: str, text: str) -> None:
    assert home.run("send", session, text).code == 0


def _grow(home: Home, session: str, *texts: str) -> Path:
    """More messages behind those of a session, as its runs would have left them."""
    path = home.session_dir(session) / "messages.jsonl"
    last = home.messages(session)[-1]
    with path.open("ab") as log:
        for number, text in enumerate(texts, last["seq"] + 1):
            log.write(encode_line(last | {"seq": number, "text": text}))
    return path


def test_each_hit_says_where_and_what(home: Home) -> None:
    """A report is also the assistant's message, and is said once; the session that changed last comes first."""
    home.model({"text": "Revenue fell, since a shop was closed."})
    first, second = home.new("one"), home.new("two")
    _say(home, first, "why did REVENUE drop?")
    _say(home, second, "and the revenue\nof last week?")
    found = home.run("search", "revenue")
    assert (found.code, found.said) == (0, "")
    assert found.text == (
        f"{second}/run-1  1  prompt  and the revenue of last week?\n"
        f"{second}/run-1  2  report  Revenue fell, since a shop was closed.\n"
        f"{first}/run-1  1  prompt  why did REVENUE drop?\n"
        f"{first}/run-1  2  report  Revenue fell, since a shop was closed.\n"
    )
    docs = home.run("search", "revenue", "--json", "--limit", "2").docs
    assert [(doc["sessionId"], doc["runId"], doc["seq"], doc["role"], doc["mode"]) for doc in docs] == [
        (second, "run-1", 1, "user", "prompt"),
        (second, "run-1", 2, "assistant", "report"),
    ]
    assert (docs[0]["before"], docs[0]["text"], docs[0]["after"]) == ("and the ", "revenue", "\nof last week?")
    only = home.run("search", "revenue", "--session", first, "--json").docs
    assert {doc["sessionId"] for doc in only} == {first}


def test_another_account_is_not_searched(home: Home) -> None:
    _say(home, home.new(), "a secret")
    found = home.run("search", "secret", "--account", "somebody")
    assert (found.code, found.out) == (0, b"")


def test_archived_sessions_are_searched_and_copied_messages_name_their_run(home: Home) -> None:
    source = home.new()
    _say(home, source, "the needle")
    fork = home.run("fork", source).text.strip()
    assert home.run("archive", source).code == 0
    docs = home.run("search", "needle", "--json").docs
    assert sorted((doc["sessionId"], doc["runId"]) for doc in docs) == sorted(
        [(source, "run-1"), (fork, f"{source}/run-1")]
    )
    assert f"{fork}  1  prompt of {source}/run-1" in home.run("search", "needle").text


def test_nothing_found_is_no_error_and_is_said_to_a_person(home: Home) -> None:
    session = home.new()
    _say(home, session, "hello")
    for arguments in (["search", "nowhere"], ["search", "nowhere", "--session", session]):
        piped = home.run(*arguments)
        assert (piped.code, piped.out, piped.said) == (0, b"", "")
        terminal = home.terminal(*arguments)
        assert terminal.end() == 0
        assert "nothing found" in terminal.text
    assert home.run("search", "").code == 2
    assert home.run("search", "x", "--session", "nobody").code == 8


@pytest.mark.parametrize("columns", [20, 80])
def test_what_is_found_cannot_drive_the_terminal(home: Home, columns: int) -> None:
    """The hit is in the middle of an escape sequence, long text around it; nothing but colours is sent."""
    session = home.new()
    text = "x" * 500 + "\x1b]0;evil needle\x07\u202e\x1b[31m为什么 " + "y" * 500
    _say(home, session, text)
    terminal = home.terminal("search", "evil needle", "--session", session, columns=columns)
    assert terminal.end() == 0
    raw = terminal.raw.replace(b"\x1b[1m", b"").replace(b"\x1b[0m", b"")
    assert not any(each in raw for each in (b"\x1b", b"\x07", "\u202e".encode()))
    assert b"\x1b[1mevil needle" in terminal.raw or columns == 20
    assert f"{session}/run-1" in raw.decode()
    plain = home.terminal("search", "evil needle", "--no-color", columns=columns)
    assert plain.end() == 0
    assert b"\x1b" not in plain.raw


def test_a_committed_report_is_found_before_its_message_is_written(home: Home) -> None:
    """case: the executor dies between the end of its run and the message with the report; readers derive it."""
    home.model({"text": "the found needle"})
    session = home.new()
    _say(home, session, "hello")
    log = home.session_dir(session) / "messages.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0])
    (home.session_dir(session) / "active").write_text("run-1\n")
    (home.session_dir(session) / "active").chmod(0o600)
    before = log.read_bytes()
    (doc,) = home.run("search", "needle", "--json").docs
    assert (doc["runId"], doc["seq"], doc["mode"]) == ("run-1", None, "report")
    assert "/run-1  -  report  the found needle" in home.run("search", "needle").text
    assert log.read_bytes() == before


def test_damage_is_warned_of_and_passed_over(home: Home) -> None:
    """A damaged line, and a session that cannot be read at all, hide no other."""
    good, broken, lost = home.new(), home.new(), home.new()
    for session in (good, broken, lost):
        _say(home, session, "the needle")
    with (home.session_dir(broken) / "messages.jsonl").open("ab") as log:
        log.write(b'{"seq":3,"text":"another needle\n')
    (home.session_dir(lost) / "session.json").write_bytes(b"{")
    found = home.run("search", "needle")
    assert found.code == 0
    assert sorted(line.split("/")[0] for line in found.text.splitlines()) == sorted([good, broken])
    assert found.said.count("damaged record at byte") == 1
    assert "session.json" in found.said
    warned = home.run("search", "needle", "--json")
    assert len(warned.docs) == 2
    assert all(json.loads(line)["warning"]["code"] == "damaged" for line in warned.said.splitlines())


def test_a_reader_that_leaves_ends_it_quietly(home: Home) -> None:
    session = home.new()
    _say(home, session, "the needle")
    _grow(home, session, *["needle " * 20] * 20_000)
    done = home.shell('{ agentrun search needle --session "$1"; echo "$?" >&2; } | head -n 2', session)
    assert (done.code, done.said) == (0, "0\n")
    assert len(done.text.splitlines()) == 2


def test_results_come_as_they_are_found(home: Home) -> None:
    """The first hit can be read while the search cannot have ended: what it writes is more than a pipe holds."""
    session = home.new()
    _say(home, session, "the first needle")
    _grow(home, session, *["needle " * 30] * 5_000)
    running = home.start("search", "needle")
    assert running.process.stdout is not None
    assert b"the first needle" in running.process.stdout.readline()
    assert not running.is_over
    assert running.end().code == 0


def _limited(home: Home, *arguments: str, megabytes: int) -> subprocess.CompletedProcess[bytes]:
    """A command that may have so much memory, what loading the program takes included."""
    argv = ["/bin/sh", "-c", f'ulimit -v {megabytes << 10}; exec "$@"', "sh", *home.argv(*arguments)]
    return subprocess.run(argv, env=home.env, capture_output=True, check=False, timeout=150)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux alone")
def test_a_hundred_megabytes_are_searched_in_little_memory(home: Home) -> None:
    """One line of 100 MB and very many small ones; what does not have the text is never held whole."""
    session = home.new()
    _say(home, session, "hello")
    path = home.session_dir(session) / "messages.jsonl"
    last = home.messages(session)[-1]
    small = encode_line(last | {"text": "nothing to see " * 4})
    with path.open("ab") as log:
        log.write(encode_line(last | {"seq": 3, "text": "0123456789 " * (100 * MEGABYTE // 11)}))
        for _ in range(10):
            log.write(small * 10_000)
        log.write(encode_line(last | {"seq": 4, "text": "here is the needle"}))
    assert os.path.getsize(path) > 100 * MEGABYTE
    # With a limit that loading alone nearly takes, so that one copy of the line would not fit.
    found = _limited(home, "search", "the needle", "--json", megabytes=96)
    assert (found.returncode, found.stderr) == (0, b"")
    assert [json.loads(line)["seq"] for line in found.stdout.splitlines()] == [4]
