"""Whatever a model, a tool, a user or a file says: it is kept to the byte or refused, and the next command works.

# covers A12 A15 B8; case C1 C17 C18 C26; promise 2 16
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE, until

Home = Any

pytestmark = pytest.mark.slow

NUMBER = "7" * 5000
# JSON as other programs write it, and what is no JSON at all.
LINES = {
    "lone surrogate": rb'{"text":"\ud800 and \udfff"}',
    "NUL": rb'{"text":"\u0000"}',
    "raw NUL": b'{"text":"\0"}',
    "NUL bytes": bytes(4096),
    "U+2028": '{"text":"\u2028\u2029\x85"}'.encode(),
    "number": b'{"seq":%s,"n":-%s}' % (NUMBER.encode(), NUMBER.encode()),
    "NaN": b'{"seq":NaN,"n":[Infinity,-Infinity,1e999]}',
    "same names": b'{"seq":1,"seq":2,"role":"user","role":7}',
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "deep object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "no UTF-8": bytes(range(128, 256)),
    "no object": b"[1,2,3]",
    "nothing": b"",
    "long": b'{"text":"' + b"x" * 3_000_000 + b'"}',
    "wrong types": b'{"seq":"1","sessionId":{},"runId":[],"role":null,"mode":0,"text":{},"createdAt":-1,"type":[]}',
}


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def fine(home: Home, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    """Runs the command, which ends as it may, in words that are no traceback."""
    done = home.run(*arguments)
    assert done.code in codes, f"{arguments}: {done.code} {done.said[-500:]}"
    assert "Traceback" not in done.said
    done.out.decode("utf-8")
    return done


@pytest.mark.parametrize("name", ["messages.jsonl", "operations.jsonl"])
def test_a_hostile_line_in_a_log_costs_itself_alone(home: Home, name: str) -> None:
    session = home.new("hostile")
    other = home.new("another")
    assert home.run("send", session, "first").code == 0
    path = next(home.session_dir(session).rglob(name))
    whole = path.read_bytes()
    for what, line in LINES.items():
        # In mid-file: before the last record.
        *before, last = whole.splitlines(keepends=True)
        damaged = b"".join(before) + line + b"\n" + last
        path.write_bytes(damaged)
        for arguments in (
            ["show", session],
            ["show", f"{session}/run-1", "--json"],
            ["show", session, "--messages", "--json"],
            ["search", "first"],
            ["check"],
        ):
            codes = (0, 3, 6, 7, 8, 10)
            done = fine(home, *arguments, codes=codes)
            assert done.code != 0 or arguments[0] != "check", f"{what}: check found nothing"
        # What was there is there, in its place; what came since stands behind it.
        assert path.read_bytes().startswith(damaged), what
    fine(home, "send", session, "again")
    assert path.read_bytes().startswith(damaged)
    assert home.run("send", other, "x").code == 0


@pytest.mark.parametrize("name", ["session.json", "run.json", "lease.json", "active"])
def test_a_hostile_document_is_named_or_made_again_and_hides_nothing(home: Home, name: str) -> None:
    session = home.new("hostile")
    other = home.new("another")
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "done"})
    run = home.detach(session, "first")
    home.at_gate()
    os.kill(home.executor(run), 9)
    until(lambda: home.view(run)["executor"] == "lost", "its executor being lost")
    path = next(home.session_dir(session).rglob(name))
    whole = path.read_bytes()
    for what, line in LINES.items():
        path.write_bytes(line)
        for arguments in (["show", session], ["show", run], ["ls"], ["check"], ["ls", "--json"]):
            fine(home, *arguments, codes=(0, 10))
        listed = home.run("ls")
        # One that cannot be listed is named as damaged.
        assert session in listed.text + listed.said, what
        assert other in listed.text, what
        fine(home, "steer", session, "left", codes=(0, 6, 7, 9, 10))
        path.write_bytes(whole)
    home.open_gate()
    fine(home, "cancel", session, "--wait")
    assert home.status(run) == "cancelled"
    assert len(home.messages(session)) == len({message["seq"] for message in home.messages(session)})


# Every byte there is, a half of a pair, ends of lines that are none, and JSON that no parser likes.
BYTES = (
    bytes(range(256)) + b"\xed\xa0\x80 " + "\u2028\u2029\x85".encode() + b"\r\n\n" + LINES["number"]
    + LINES["NaN"] + LINES["same names"] + LINES["deep"][:100_000] + b"x" * 1_000_000
)  # fmt: skip


def test_hostile_bytes_that_are_said_are_kept_to_the_byte_by_whatever_way_they_come(home: Home) -> None:
    """By standard input, a file, an attachment and a model, with a prompt, a steer and an answer: one line each."""
    (home.path / "said").write_bytes(BYTES)
    reply = BYTES.decode("utf-8", "replace")
    home.model({"ask": reply}, {"text": reply})
    session = home.new()
    fine(home, "send", session, "--file", str(home.path / "said"), "--attach", str(home.path / "said"), codes=(5,))
    for words in (["steer", session, "-"], ["send", session, "-", "--mode", "answer"]):
        said = home.run(*words, stdin=BYTES)
        assert (said.code, "Traceback" in said.said) == (0, False), said.said[-500:]
    messages = home.messages(session)
    assert [message["seq"] for message in messages] == [1, 2, 3, 4, 5]
    kept = [message["text"].encode("utf-8", "surrogateescape") for message in messages if message["role"] == "user"]
    assert kept == [BYTES] * 3
    assert {message["text"] for message in messages if message["role"] == "assistant"} == {reply}
    (attached,) = (home.session_dir(session) / "attachments").iterdir()
    assert attached.read_bytes() == BYTES
    assert (home.run_dir(session) / "report.md").read_bytes() == reply.encode("utf-8")
    shown = fine(home, "show", session, "--messages", "--json")
    assert [doc["text"] for doc in shown.docs] == [message["text"] for message in messages]
    for arguments in (["show", session], ["show", f"{session}/1"], ["ls"], ["search", "xxx"], ["export", session]):
        fine(home, *arguments)
    assert fine(home, "check").out == b""


def test_hostile_arguments_of_a_model_s_call_reach_the_tool_or_are_refused_in_words(home: Home) -> None:
    home.tool("take", f"cat >{home.path}/taken.$AGENTRUN_OPERATION; echo done")
    arguments = {
        "number": f'{{"n":{NUMBER}}}',
        "NaN": '{"n":[NaN,Infinity,1e999]}',
        "same names": '{"a":1,"a":2}',
        "surrogate": r'{"a":"\ud800\u0000\u2028"}',
        "wide": json.dumps({str(number): number for number in range(20_000)}),
        "long": json.dumps({"a": "x" * 2_000_000}),
    }
    calls = ",".join(f'{{"name":"take","arguments":{text}}}' for text in arguments.values())
    home.model({})
    (home.path / "script.json").write_text(f'{{"turns":[{{"calls":[{calls}]}},{{"text":"done"}}]}}')
    session = home.new()
    sent = fine(home, "send", session, "go")
    assert sent.text.startswith("done")
    events = home.events(session, "tool.finished")
    assert len(events) == len(arguments)
    taken = [json.loads(path.read_bytes(), parse_int=str) for path in sorted(home.path.glob("taken.*"))]
    assert len(taken) == len(arguments)
    assert {"n": NUMBER} in taken
    assert {"a": "2"} in taken
    assert {"a": "\ud800\0\u2028"} in taken
    fine(home, "check")
    raw = lines_of(home.run_dir(session) / "operations.jsonl")
    assert [json.loads(line)["seq"] for line in raw] == list(range(1, len(raw) + 1))


def test_a_tool_without_end_and_one_line_of_a_hundred_megabytes_cost_no_memory_and_keep_the_run(home: Home) -> None:
    home.tool("endless", "yes", timeout="1s")
    home.tool("line", "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last words >&2")
    home.model({"calls": [{"name": "endless"}]}, {"calls": [{"name": "line"}]}, {"text": "done"})
    session = home.new()
    assert home.run("send", session, "go", "--json").code == 0
    endless, line = home.events(session, "tool.finished")
    assert endless["payload"]["status"] != "succeeded"
    assert line["payload"]["blob"]["bytes"] <= 100_000_001
    assert home.status(session) == "completed"
    # What the model was given is bounded, and says so.
    assert (home.run_dir(session) / "operations.jsonl").stat().st_size < 1_000_000


def test_a_line_of_a_hundred_megabytes_in_the_conversation_is_passed_in_bounded_memory(home: Home) -> None:
    session = home.new()
    assert home.run("send", session, "first").code == 0
    path = home.session_dir(session) / "messages.jsonl"
    first, last = lines_of(path)
    with path.open("wb") as file:
        file.write(first + b"\n" + b'{"text":"')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n' + last + b"\n")
    for arguments in (["ls"], ["show", session, "--messages", "--tail", "1", "--json"]):
        limited = ["sh", "-c", 'ulimit -v 600000; exec "$@"', "sh", *home.argv(*arguments)]
        done = subprocess.run(limited, env=home.env, capture_output=True, timeout=PATIENCE, check=False)
        assert done.returncode in (0, 10), done.stderr[-500:]
        assert b"Traceback" not in done.stderr


@pytest.fixture
def read_only(home: Home, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A place in the home, the root say, on a mount that refuses writing."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = home.path / getattr(request, "param", "root")
    bind = ["mount", "--bind", str(place), str(place)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_read_only_root_is_read_and_a_write_is_refused_with_its_path(home: Home, request: Any) -> None:
    session = home.new("kept")
    assert home.run("send", session, "first").code == 0
    request.getfixturevalue("read_only")
    for arguments in (["show", session], ["show", f"{session}/1"], ["ls"], ["search", "first"], ["check"]):
        fine(home, *arguments)
    for arguments in (["new", "x"], ["send", session, "x"], ["rename", session, "x"], ["fork", session]):
        refused = fine(home, *arguments, codes=(11,))
        assert refused.out == b""
        assert str(home.root) in refused.said


@pytest.mark.parametrize("read_only", ["home"], indirect=True)
def test_a_home_that_refuses_writing_matters_to_nobody_whose_root_is_elsewhere(home: Home, read_only: Path) -> None:
    """# case C26"""
    home.tool("look", "echo rows")
    home.model({"calls": [{"name": "look"}]}, {"text": "{{op:look}}"})
    session = home.new("kept")
    assert fine(home, "send", session, "first").text == "rows\n"
    for arguments in (["show", session], ["ls"], ["search", "first"], ["check"], ["config"], ["recover"]):
        fine(home, *arguments)
    assert list(read_only.iterdir()) == []


def test_without_a_home_a_root_that_is_named_is_enough(home: Home) -> None:
    environment = {name: value for name, value in home.env.items() if name != "HOME"}
    home.env = environment
    session = home.new("homeless")
    assert home.run("send", session, "x").code == 0
    assert session in home.run("ls").text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that has no home")
@pytest.mark.parametrize("told", [None, "", "relative"])
def test_a_user_without_a_home_has_to_name_a_root(home: Home, told: str | None) -> None:
    """Neither the working directory nor the top of the file system is one. # case C26"""
    del home.env["AGENTRUN_ROOT"]
    home.env = {name: value for name, value in home.env.items() if not name.startswith("XDG_") and name != "HOME"}
    if told is not None:
        home.env["HOME"] = told
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        refused = home.run("new", "x", user=64001, cwd=made)
        assert (refused.code, refused.out) == (2, b""), refused.said
        assert "--root DIR" in refused.said
        assert os.listdir(made) == []


def test_a_home_that_refuses_writing_is_named_and_nothing_is_made_elsewhere(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, who is refused")
    del home.env["AGENTRUN_ROOT"]
    with tempfile.TemporaryDirectory() as made:
        # The directory of the test is in one that no other user may enter.
        elsewhere = Path(made)
        elsewhere.chmod(0o755)
        home.env |= {"HOME": made, "AGENTRUN_CONFIG": f"{made}/agentrun.toml"}
        refused = home.run("new", "x", user=65534, cwd=made)
        assert refused.code in (9, 11), refused.said
        assert made in refused.said
        assert refused.out == b""
        assert list(elsewhere.iterdir()) == []
