"""Standard input, output and error as scripts leave them: open and silent, empty, closed, full, or with no reader.

# case C25
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE

Home = Any
Until = Callable[..., Any]

pytestmark = pytest.mark.slow
EVERY_COMMAND = (
    "agentrun new",
    'agentrun send "$1" hi',
    'agentrun send "$1" hi --json',
    'agentrun send "$1" hi --detach',
    'agentrun show "$1"',
    'agentrun show "$1" -f',
    'agentrun show "$1" --messages --json',
    "agentrun ls",
    "agentrun new --send hi",
    "agentrun --help",
    "agentrun send --help",
    "agentrun --version",
)
# The rest of them, in the form in which they neither read standard input nor end what the next one needs.
OTHERS = (
    'agentrun steer "$1" more', 'agentrun approve "$1"', 'agentrun deny "$1"', 'agentrun cancel "$1"',
    'agentrun wait "$1"', 'agentrun check', 'agentrun check "$1" --repair', "agentrun recover",
    "agentrun recover --dry-run", 'agentrun resume "$1"', 'agentrun reconcile "$1"', "agentrun search first",
    'agentrun rename "$1" again', 'agentrun archive "$1"', 'agentrun unarchive "$1"', 'agentrun fork "$1"',
    'agentrun rm "$1"', 'agentrun export "$1"', 'agentrun export "$1" --format archive', "agentrun agents",
    "agentrun config", "agentrun completion bash", 'agentrun show "$1"/1 --operations', 'agentrun show "$1" --timeline',
    'agentrun show "$1" --html -', "agentrun import /no/such/file", "agentrun nonsense", "agentrun ls --json",
)  # fmt: skip


@pytest.fixture
def session(home: Home) -> str:
    session = str(home.new())
    assert home.run("send", session, "the first").code == 0
    return session


def _nothing_is_left_open(home: Home, until: Until) -> None:
    """Every run that was accepted was executed, whatever its command could not say."""

    def all_completed() -> bool:
        runs = [path for each in home.sessions.iterdir() for path in (each / "runs").iterdir()]
        told = [run / "run.json" for run in runs]
        return all(path.exists() and json.loads(path.read_bytes())["status"] == "completed" for path in told)

    until(all_completed, "the end of every run")
    for each in home.sessions.iterdir():
        for line in (each / "messages.jsonl").read_bytes().splitlines():
            json.loads(line)


# --- standard input


def test_a_text_that_is_an_argument_never_waits_for_standard_input(home: Home, session: str) -> None:
    for arguments in (
        ["new"],
        ["send", session, "hi"],
        ["send", session, "hi", "--detach", "--key", "k"],
        ["show", session],
        ["ls"],
        ["show", "-f", session],
    ):
        read, write = os.pipe()
        with os.fdopen(read), os.fdopen(write, "wb"):
            done = subprocess.run(
                home.argv(*arguments), stdin=read, env=home.env, capture_output=True, timeout=PATIENCE, check=False
            )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        (["-"], b"from a pipe\n", "from a pipe\n"),
        (["review this", "-"], b"a diff\n", "review this\n\na diff"),
        (["-", "review this"], b"a diff\n", "review this\n\na diff"),
        (["-", "--file", "{file}"], b"a diff\n", "a diff\n\nfrom a file"),
        (["review", "-", "--file", "{file}"], b"a diff\n\n", "review\n\na diff\n\nfrom a file"),
        (["review", "--file", "{file}", "--file", "{file}"], b"", "review\n\nfrom a file\n\nfrom a file"),
        (["--file", "{file}"], b"", "from a file\n"),
        (["-"], "直播 \u2028 x".encode(), "直播 \u2028 x"),
    ],
)
def test_the_parts_of_a_text_in_their_order(home: Home, arguments: list[str], stdin: bytes, text: str) -> None:
    file = home.path / "file"
    file.write_text("from a file\n")
    session = home.new()
    sent = home.run("send", session, *(each.format(file=file) for each in arguments), stdin=stdin)
    assert sent.code == 0, sent.said
    assert home.messages(session)[0]["text"] == text


def test_a_steer_reads_standard_input_too(home: Home) -> None:
    home.model({"ask": "which?"})
    session = home.new()
    home.run("send", session, "x")
    assert home.run("steer", session, "-", stdin=b"only new").code == 0
    assert home.messages(session)[-1]["text"] == "only new"


@pytest.mark.parametrize("stdin", ["</dev/null", "<&-"])
def test_a_dash_with_nothing_to_read_is_wrong_usage(home: Home, session: str, stdin: str) -> None:
    failed = home.shell(f'agentrun send "$1" - {stdin}', session)
    assert (failed.code, failed.out) == (2, b"")
    assert len(home.messages(session)) == 2


def test_a_text_without_end_is_read_to_a_bound_and_refused(home: Home, session: str) -> None:
    # covers promise 16
    before = home.messages(session)
    for words in (
        'agentrun send "$1" - </dev/zero',
        'agentrun send "$1" --file /dev/zero',
        'yes | agentrun send "$1" -',
    ):
        failed = home.shell(f"ulimit -v 1000000; {words}", session)
        assert (failed.code, failed.out) == (2, b""), (words, failed)
        assert b"64 MiB at most" in failed.err
        assert b"leave it in a file" in failed.err
    assert home.messages(session) == before


# --- closed, full, and without a reader


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "<&- 2>&-"])
def test_streams_that_are_closed(home: Home, session: str, until: Until, closed: str) -> None:
    for command in EVERY_COMMAND:
        done = home.shell(f"{command} {closed}", session)
        assert done.code == 0, (command, done)
        assert b"Traceback" not in done.err
        _nothing_is_left_open(home, until)
    failed = home.shell(f"agentrun nonsense {closed}", session)
    assert failed.code == 2


def test_a_standard_output_that_is_full_is_no_success_and_ends_no_run(home: Home, session: str, until: Until) -> None:
    for command in EVERY_COMMAND:
        done = home.shell(f"{command} >/dev/full", session)
        assert done.code == 11, (command, done)
        assert b"Traceback" not in done.err
        assert b"ENOSPC" in done.err
        _nothing_is_left_open(home, until)


def test_a_standard_error_that_is_full_changes_nothing(home: Home, session: str, until: Until) -> None:
    for command in EVERY_COMMAND:
        assert home.shell(f"{command} 2>/dev/full", session).code == 0
        _nothing_is_left_open(home, until)
    assert home.shell("agentrun nonsense 2>/dev/full").code == 2


def test_a_reader_that_is_gone_is_no_failure_and_ends_no_run(home: Home, session: str, until: Until) -> None:
    for command in EVERY_COMMAND:
        if command == "agentrun new --send hi":
            continue  # the id could not be told, so nothing was accepted
        done = home.shell(f'{{ {command}; echo "$?" >&2; }} | true', session)
        assert done.err.endswith(b"0\n"), (command, done)
        assert b"Traceback" not in done.err
        _nothing_is_left_open(home, until)


def test_the_run_goes_on_when_the_reader_of_its_events_goes(home: Home) -> None:
    home.tool("slow", "sleep 0.3; echo done")
    home.model({"calls": [{"name": "slow"}]}, {"calls": [{"name": "slow"}]}, {"text": "a report"})
    session = home.new()
    piped = home.shell('{ agentrun send "$1" analyse --json; echo "$?" >&2; } | head -n 1', session)
    assert json.loads(piped.out)["type"] == "accepted"
    assert piped.err.endswith(b"0\n")
    assert home.status(session) == "completed"
    assert home.events(session, "run.cancel_requested") == []


def test_a_standard_error_that_nobody_reads_keeps_no_run_from_being_executed(home: Home, session: str) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    sent = home.run("send", session, "analyse", stderr=writing)
    assert (sent.code, sent.text) == (0, "a report\n")
    os.close(reading)
    os.close(writing)


def test_a_reader_that_stalls_stalls_neither_the_run_nor_its_cancel(home: Home) -> None:
    home.tool("flood", "yes 0123456789 | head -c 30000")
    home.tool("wait", home.gate())
    home.model(*[{"calls": [{"name": "flood"}] * 3}] * 3, {"calls": [{"name": "wait"}]}, {"text": "never"})
    session = home.new()
    # More than a pipe holds, and nobody reads it yet.
    sending = home.start("send", session, "analyse", "--json")
    home.wait_for_event(session, "tool.started", 10)
    assert home.run("steer", session, "only new").code == 0
    assert home.run("cancel", session, "--wait", "--timeout", "20s").code == 0
    assert home.status(session) == "cancelled"
    ended = sending.end()
    assert ended.code == 3
    assert ended.out.split(b"\n", 1)[1] == (home.run_dir(session) / "operations.jsonl").read_bytes()


def test_a_terminal_that_is_stopped_stalls_neither_the_run_nor_its_cancel(home: Home) -> None:
    home.tool("wait", home.gate())
    home.model({"text": "word " * 20_000, "calls": [{"name": "wait"}]}, {"text": "never"})
    session = home.new()
    # Nobody reads what the terminal is sent.
    terminal = home.terminal("send", session, "analyse")
    home.wait_for_event(session, "tool.started")
    assert home.run("cancel", session, "--wait", "--timeout", "20s").code == 0
    assert terminal.end() == 3


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_every_other_command_ends_the_same_whatever_its_streams_are(home: Home, session: str) -> None:
    """No standard input is waited for, no stream that is closed or has lost its reader is a failure, a full one is."""
    silent = str(home.path / "silent")
    os.mkfifo(silent)
    # As long as somebody may still write there, it has no end.
    writer = os.open(silent, os.O_RDWR)
    for command in OTHERS:
        usual = home.shell(command, session)
        for streams in ("</dev/null", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            ended = home.shell(f"{command} {streams}", session)
            assert ended.code == usual.code, (command, streams, ended)
            assert b"Traceback" not in ended.err
        ended = home.shell(f'{command} <"$2"', session, silent)
        assert (ended.code, bool(ended.out)) == (usual.code, bool(usual.out)), (command, ended)
        ended = home.shell(f'{{ {command}; echo "$?" >&2; }} | head -n 1', session)
        assert ended.err.endswith(f"{usual.code}\n".encode()), (command, ended)
        assert b"Traceback" not in ended.err
        ended = home.shell(f"{command} >/dev/full", session)
        assert ended.code == (11 if usual.out else usual.code), (command, ended)
        assert b"Traceback" not in ended.err
    os.close(writer)


# --- scripts


def test_a_script_that_stops_at_the_first_failure(home: Home) -> None:
    home.model({"text": "a report"})
    script = """
    set -eu
    id=$(agentrun new "a title")
    report=$(agentrun send "$id" "analyse")
    test "$report" = "a report"
    agentrun send "$id" "and more" | grep -q report
    agentrun ls --json | head -n 1 | grep -q "$id"
    agentrun show "$id" --report > "$1"
    agentrun send "$id" "x" --mode steer || code=$?
    test "$code" = 7
    echo good
    """
    done = home.shell(script, str(home.path / "report"))
    assert (done.code, done.out) == (0, b"good\n"), done
    assert (home.path / "report").read_bytes() == b"a report\n"


@pytest.mark.parametrize("count", [12, pytest.param(32, marks=pytest.mark.exhaustive)])
def test_many_at_once_on_a_root_that_is_not_there_yet(home: Home, count: int) -> None:
    # case C6
    script = (
        f'seq {count} | xargs -P {count} -I{{}} sh -c \'"$0" -m agentrun new "number {{}}" --send "hello {{}}"\' "$1"'
    )
    done = home.shell(script, home.argv()[0])
    assert done.code == 0, done.said
    assert done.out.count(b"a report\n") == count
    assert b"Traceback" not in done.err
    assert len(home.run("ls", "--limit", "99").text.splitlines()) == count
    for path in home.root.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_one_session_takes_one_of_many_prompts_at_once(home: Home, session: str) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "a report"})
    started = [
        home.start("send", session, f"prompt {number}", "--if-busy", "reject", "--detach") for number in range(8)
    ]
    ended = [each.end() for each in started]
    assert sorted(each.code for each in ended) == [0] + [7] * 7
    for each in ended:
        assert f"{session}/run-2" in each.said + each.text
    home.open_gate()
    home.wait_for_status(f"{session}/run-2", "completed")
    assert len(home.messages(session)) == 4


def test_the_directory_of_the_user_is_not_searched_for_modules(home: Home, session: str) -> None:
    for name in ("agentrun", "json", "anyio"):
        (home.path / f"{name}.py").write_text("raise SystemExit('this is not the module you are looking for')\n")
    script = (
        'import runpy, sys; sys.argv = ["agentrun", *sys.argv[1:]]; runpy.run_module("agentrun", run_name="__main__")'
    )
    argv = [home.argv()[0], "-P", "-c", script, "send", session, "hi", "--detach"]
    done = subprocess.run(argv, cwd=home.path, env=home.env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    home.wait_for_status(f"{session}/run-2", "completed")
