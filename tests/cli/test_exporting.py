"""`export` as scripts use it: data in pipes, files that are whole or not there, errors that say what to type."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Home

pytestmark = pytest.mark.slow


@pytest.fixture
def talk(home: Home) -> str:
    """A session with a run that called a tool."""
    home.tool("query", "cat")
    home.model({"text": "I look.", "calls": [{"name": "query", "arguments": {"sql": "x"}}]}, {"text": "Fine \x1b[31m."})
    session = home.new("the \x1b[31mtitle")
    assert home.run("send", session, "go").code == 0
    return session


def test_in_pipes(home: Home, talk: str) -> None:
    piped = home.shell('agentrun export "$1" --format openai | jq -c "map(.role)"', talk)
    assert (piped.code, piped.text, piped.said) == (0, '["user","assistant","tool","assistant"]\n', "")
    assert home.shell('set -e; agentrun export "$1" | head -n 1', talk).text == "# the \\x1b[31mtitle\n"
    whole = home.run("export", f"{talk}/1", "--json")
    assert whole.err == b""
    assert json.loads(whole.out)["runs"][0]["report"] == "Fine \x1b[31m."
    assert b"\x1b" not in whole.out


def test_a_page_for_a_browser(home: Home, talk: str) -> None:
    path = home.path / "talk.html"
    assert home.run("export", talk, "-o", str(path)).code == 0
    page = path.read_text()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert "\x1b" not in page
    assert home.run("export", f"{talk}/1", "--format", "html").text.startswith("<!doctype html>")


def test_a_terminal_is_not_driven(home: Home, talk: str) -> None:
    # case C22
    terminal = home.terminal("export", talk)
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.raw
    assert "Fine \\x1b[31m." in terminal.text


def test_a_file_is_whole_private_and_replaced_only_when_told(home: Home, talk: str) -> None:
    path = home.path / "talk.openai.json"
    umask = os.umask(0)
    try:
        done = home.run("export", talk, "--output", str(path), "--json")
    finally:
        os.umask(umask)
    data = path.read_bytes()
    assert len(json.loads(data)) == 4
    assert done.docs[0]["exported"] == {
        "sessionId": talk, "runId": None, "format": "openai", "path": str(path), "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"mine")
    again = home.run("export", talk, "-o", str(path), "--json")
    assert (again.code, again.error["code"]) == (7, "conflict")
    assert "--overwrite" in again.error["hint"]
    assert path.read_bytes() == b"mine"
    assert home.run("export", talk, "-o", str(path), "--overwrite").code == 0
    assert path.read_bytes() == data
    assert sorted(each.name for each in home.path.iterdir() if "talk" in each.name) == [path.name]


def test_what_cannot_be_written_leaves_nothing(home: Home, talk: str) -> None:
    target = home.path / "fifo.md"
    os.mkfifo(target)
    link = home.path / "link.md"
    link.symlink_to("elsewhere")
    for path, code in ((target, 2), (link, 2), (home.path / "missing" / "a.md", 8), (Path("/proc/a.md"), 8)):
        done = home.run("export", talk, "-o", str(path), "--overwrite")
        assert done.code == code, (path, done.said)
        assert str(path) in done.said
    assert not (home.path / "elsewhere").exists()
    with (home.path / "full").open("wb") as full:
        # A file that may have 1,000 bytes (RLIMIT_FSIZE counts in blocks of 512).
        limited = home.shell('trap "" XFSZ; ulimit -f 1; agentrun export "$1" --format json -o "$2"', talk, "big.json")
        assert limited.code == 11, limited.said
        assert "EFBIG" in limited.said
        del full
    assert [path for path in Path.cwd().iterdir() if "big.json" in path.name] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("export", "nothing-like-it"), 8, "agentrun ls"),
        (
            ("export", "@last", "--format", "pdf"),
            2,
            "the formats are: markdown, json, openai, atif, otlp, html, archive",
        ),
        (("export", "@last/7"), 8, "there is no run-7"),
        (("export", "@last", "--overwrite"), 2, "--output"),
    ],
)
def test_errors_say_what_to_type(home: Home, talk: str, words: tuple[str, ...], code: int, said: str) -> None:
    done = home.run(*words)
    assert (done.code, done.out) == (code, b"")
    assert said in done.said
