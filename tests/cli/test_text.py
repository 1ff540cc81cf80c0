"""Text from anywhere is kept as it is, and drives no terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest

Home = Any

pytestmark = pytest.mark.slow

# Clears the screen, sets the title, moves the cursor, reports back, hides, turns around, breaks lines.
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x1b[6n\x9b31m\x90q\x9c\r\x08\x7f\x0b\x0c\x1a\x05"
    "\u202e\u2066\u200b\u200e\ufeff\u2028\u2029\x85\u061c\U000e0041 end"
)
EVERY_CONTROL = "".join(map(chr, [*range(1, 32), *range(127, 160)]))
FORMATS = "".join(chr(point) for point in range(0x110000) if unicodedata.category(chr(point)) == "Cf")


def assert_drives_nothing(raw: bytes) -> None:
    """Nothing but what the live view itself draws with: colours, erasing below, up, and wrapping on and off."""
    text = raw.decode("utf-8")
    text = re.sub(r"\x1b\[([0-9;]*m|J|[0-9]+A|\?7[lh])", "", text)
    # The view's own returns: before erasing and after the region.
    bad = [
        character
        for character in text.replace("\r\n", "\n").replace("\r", "")
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert not bad, [hex(ord(each)) for each in bad]


@pytest.mark.parametrize("text", [HOSTILE, EVERY_CONTROL + "end", FORMATS + "end"])
def test_hostile_text_in_every_place_is_shown_and_not_sent(home: Home, text: str) -> None:
    (home.path / "said").write_text(text, encoding="utf-8", newline="")
    home.tool("say", f"cat {home.path}/said")
    home.tool("fail", f"cat {home.path}/said >&2; exit 3")
    home.tool("name", """printf '{"remoteId":"\\\\u001b[2Jremote"}\\n' >&3""")
    calls = [{"name": name, "arguments": {"text": text}} for name in ("say", "fail", "name")]
    home.model({"text": text, "calls": calls}, {"ask": text}, {"text": text})
    session = home.new(text)
    sending = home.terminal("send", session, text)
    sending.wait_for("\n>")
    answered = home.run("send", session, text)
    assert answered.code == 0, answered.said
    assert sending.end() == 0
    assert_drives_nothing(sending.raw)

    run = f"{session}/run-1"
    for arguments in (
        ["show", session],
        ["show", run],
        ["show", "-f", run],
        ["show", run, "--report"],
        ["show", run, "--operations"],
        ["show", session, "--messages"],
        ["ls"],
        ["show", run, "--json"],
        ["show", session, text],
        ["show", text],
        ["send", session, text, "--agent", text],
        ["new", "--id", text],
        ["ls", "--status", text],
        ["send", session, "--file", text],
        [text],
    ):
        terminal = home.terminal(*arguments, columns=120)
        terminal.end()
        assert_drives_nothing(terminal.raw)
    for arguments in (["show", run], ["show", session], ["ls"], ["show", session, "--messages"]):
        assert_drives_nothing(home.run(*arguments).out)


@pytest.mark.parametrize("text", [HOSTILE, EVERY_CONTROL + "end", FORMATS + "end"])
def test_json_keeps_the_content_and_drives_nothing(home: Home, text: str) -> None:
    home.model({"text": text})
    session = home.new(text)
    sent = home.run("send", session, text, "--json")
    assert sent.code == 0
    for line in sent.out.split(b"\n")[:-1]:
        json.loads(line.decode("utf-8"))
    assert len(sent.out.decode("utf-8").splitlines()) == len(sent.out.split(b"\n")) - 1
    assert_drives_nothing(sent.out)
    (shown,) = home.run("show", session, "--json").docs
    assert shown["session"]["title"] == text
    messages = home.run("show", session, "--messages", "--json").docs
    assert [message["text"] for message in messages] == [text, text]
    # A pipe gets the report's bytes.
    assert home.run("show", session, "--report").out.removesuffix(b"\n") == text.encode("utf-8")


def test_raw_is_raw(home: Home) -> None:
    home.model({"text": "\x1b[31mred\x1b[0m"})
    session = home.new()
    home.run("send", session, "x")
    terminal = home.terminal("show", session, "--report", "--raw")
    assert terminal.end() == 0
    assert b"\x1b[31mred" in terminal.raw


def test_an_argument_that_is_no_utf8_can_be_had_back(home: Home) -> None:
    text = bytes(range(1, 256))
    session = home.new(b"caf\xe9 " + text)
    # In the plainest locale there is, too.
    sent = home.run("send", session, b"caf\xe9 " + text, b"--key", b"k\xff", env={"LC_ALL": "C"})
    assert sent.code == 0, sent.said
    again = home.run("send", session, b"caf\xe9 " + text, b"--key", b"k\xff")
    assert again.code == 0
    raw = (home.session_dir(session) / "messages.jsonl").read_bytes()
    raw.decode("utf-8")
    first, *_ = home.messages(session)
    assert first["text"].encode("utf-8", "surrogateescape") == b"caf\xe9 " + text
    assert len(home.messages(session)) == 2
    for arguments in (["show", session], ["ls"], ["show", session, "--messages"]):
        shown = home.run(*arguments)
        assert shown.code == 0
        shown.out.decode("utf-8")
    cited = home.run("show", session, "--messages", "--json")
    cited.out.decode("utf-8")
    assert cited.docs[0]["text"].encode("utf-8", "surrogateescape") == b"caf\xe9 " + text
    for line in cited.out.splitlines():
        line.decode("utf-8")


def test_hostile_bytes_from_a_tool_do_not_stop_the_run_and_are_kept(home: Home) -> None:
    output = bytes(range(256)) + "é".encode()[:1] + b"\0\0" + "\u2028\x85".encode() + b'{"n": ' + b"9" * 5000 + b"} NaN"
    (home.path / "output").write_bytes(output)
    home.tool("say", f"cat {home.path}/output")
    home.model({"calls": [{"name": "say"}]}, {"text": "it said {{op:say}}"})
    session = home.new()
    sent = home.run("send", session, "x", "--json", env={"LANG": "C", "LC_ALL": "C"})
    assert sent.code == 0
    raw = (home.run_dir(session) / "operations.jsonl").read_bytes()
    assert len(raw.decode("utf-8").split("\n")) - 1 == len(home.events(session))
    (finished,) = home.events(session, "tool.finished")
    blob = finished["payload"]["blob"]
    assert (home.run_dir(session) / "blobs" / blob["sha256"]).read_bytes() == output
    assert blob["bytes"] == len(output)
    assert home.run("show", f"{session}/1").code == 0
    terminal = home.terminal("show", f"{session}/1")
    assert terminal.end() == 0
    assert_drives_nothing(terminal.raw)


def test_a_character_that_is_cut_at_a_buffers_end_is_whole(home: Home) -> None:
    output = "x" * 65_535 + "直播" * 10_000
    (home.path / "output").write_text(output, encoding="utf-8")
    home.tool("say", f"cat {home.path}/output")
    home.model({"calls": [{"name": "say"}]}, {"text": "done"})
    session = home.new()
    assert home.run("send", session, "x").code == 0
    (finished,) = home.events(session, "tool.finished")
    blob = home.run_dir(session) / "blobs" / finished["payload"]["blob"]["sha256"]
    assert blob.read_text(encoding="utf-8") == output


def test_wide_titles_keep_their_columns(home: Home) -> None:
    titles = ["plain title", "直播复盘 昨晚", "👩‍👩‍👧 family", "e\u0301clair", "🇩🇪🇯🇵"]
    sessions = [home.new(title) for title in titles]
    terminal = home.terminal("ls", columns=70)
    assert terminal.end() == 0
    heading, *lines = [line for line in terminal.lines if line.strip()]
    assert heading == "done"
    rows = {line.split()[0]: line for line in lines}
    assert set(rows) == set(sessions)
    columns = {rows[session].index("no run") for session in sessions}
    assert len(columns) == 1


def test_a_title_cannot_pretend_to_be_another_line(home: Home) -> None:
    home.new("innocent\nsession-0000000000000  ✓ completed  now  forged")
    assert len(home.run("ls").text.splitlines()) == 1
