"""Files that go with a prompt: read once, kept before the prompt is accepted, told to the model, found by tools.

# covers A17 A24 A25 A28 A32
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Home = Any


def requests(home: Home) -> list[dict[str, Any]]:
    """What the agent was told, once each turn, by an agent that writes it down."""
    return [json.loads(line) for line in (home.path / "told.jsonl").read_text().splitlines()]


def shared(home: Home) -> Path:
    """The directory that the account's sessions share."""
    directory = home.sessions.parent / "shared"
    directory.mkdir(mode=0o700, exist_ok=True)
    return Path(directory)


def attachments(home: Home, session: str) -> list[dict[str, Any]]:
    return [each for line in home.messages(session) if "accept" in line for each in line["accept"]["attachments"]]


def test_a_file_is_kept_as_it_was_and_found_by_tools(home: Home) -> None:
    home.tool(
        "look", 'cat "$AGENTRUN_SCRATCH/attachments/week 12.csv"; echo changed > "$AGENTRUN_SCRATCH"/attachments/*'
    )
    home.model({"ifContains": "a;b\n1;2", "calls": [{"name": "look"}]}, {"text": "It says {{op:look}}."})
    file = home.path / "week 12.csv"
    file.write_text("a;b\n1;2\n")
    session = home.new()
    sent = home.run("send", session, "what is in it?", "--attach", str(file))
    assert (sent.code, sent.text) == (0, "It says a;b\n1;2.\n"), sent.said
    sha256 = hashlib.sha256(b"a;b\n1;2\n").hexdigest()
    expected = [{"name": "week 12.csv", "sha256": sha256, "bytes": 8, "from": "file"}]
    assert attachments(home, session) == expected
    assert home.events(session, "run.accepted")[0]["payload"]["attachments"] == expected
    # What the tool made of its copy changes neither what was attached nor the user's own file.
    kept = home.session_dir(session) / "attachments" / sha256
    assert kept.read_bytes() == file.read_bytes() == b"a;b\n1;2\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert home.run("check", session).code == 0
    assert "attached week 12.csv, 8 bytes" in home.run("show", f"{session}/1").text
    assert "attached week 12.csv" in home.run("show", session, "--messages").text


def test_what_is_shared_is_reached_by_naming_it_and_kept_as_it_was(home: Home) -> None:
    home.model({"ifContains": "the first", "text": "I see the first."}, {"text": "I see no file."})
    session, other = home.new(), home.new()
    notes = shared(home) / "notes.md"
    notes.write_text("the first\n")
    assert home.run("send", other, "what do the notes say?").text == "I see no file.\n"
    assert home.run("send", session, "what do they say?", "--attach", "shared:notes.md").text == "I see the first.\n"
    notes.write_text("the second\n")
    (attached,) = attachments(home, session)
    assert (attached["from"], attached["sha256"]) == ("shared:notes.md", hashlib.sha256(b"the first\n").hexdigest())
    assert (home.session_dir(session) / "attachments" / attached["sha256"]).read_text() == "the first\n"
    assert not (home.session_dir(other) / "attachments").exists()


@pytest.mark.parametrize(
    ("name", "code"),
    [("../notes.md", 2), ("/etc/passwd", 2), ("", 2), (".hidden", 2), ("a/b", 2), ("x\n", 2), ("nowhere", 8),
     ("link", 9), ("twice", 9), ("fifo", 9), ("folder", 9)],
)  # fmt: skip
def test_nothing_outside_is_shared(home: Home, name: str, code: int) -> None:
    # case C21
    session = home.new()
    outside = home.path / "secret"
    outside.write_text("secret")
    (shared(home) / "link").symlink_to(outside)
    (shared(home) / "twice").hardlink_to(outside)
    (shared(home) / "folder").mkdir()
    os.mkfifo(shared(home) / "fifo")
    refused = home.run("send", session, "go", "--attach", f"shared:{name}")
    assert (refused.code, refused.out) == (code, b"")
    assert home.messages(session) == []
    assert sorted(path.name for path in home.session_dir(session).iterdir()) == [
        "keys", "messages.jsonl", "runs", "session.json",
    ]  # fmt: skip


def test_how_a_file_gets_there_can_be_typed_as_it_is_told(home: Home) -> None:
    session = home.new()
    (home.path / "my notes.md").write_text("x")
    words = ("send", session, "go", "--attach", "shared:my notes.md")
    refused = home.run(*words, "--json")
    told = refused.error["hint"].removeprefix("put it there with: ")
    assert (refused.code, home.shell(f"cd '{home.path}' && {told}").code) == (8, 0), told
    assert home.run(*words).code == 0


def test_a_shared_directory_that_is_a_link_is_none(home: Home) -> None:
    session = home.new()
    (home.path / "elsewhere").mkdir()
    (home.path / "elsewhere" / "notes.md").write_text("x")
    (home.sessions.parent / "shared").symlink_to(home.path / "elsewhere")
    assert home.run("send", session, "go", "--attach", "shared:notes.md").code == 9


def test_what_cannot_be_attached_is_refused_before_anything_is_accepted(home: Home) -> None:
    session = home.new()
    (home.path / "a").mkdir()
    for path in (home.path / "notes.md", home.path / "a" / "notes.md"):
        path.write_text("x")
    os.mkfifo(home.path / "fifo")
    with (home.path / "large").open("wb") as large:
        large.truncate(64 * 1024 * 1024 + 1)
    both = ("--attach", str(home.path / "notes.md"), "--attach", str(home.path / "a" / "notes.md"))
    for words in (both, *(("--attach", str(home.path / name)) for name in ("nowhere", "a", "fifo", "large"))):
        refused = home.run("send", session, "go", *words)
        assert (refused.code, refused.out) == (2, b""), words
    assert home.messages(session) == []


def test_a_file_goes_with_a_prompt_and_not_with_what_joins_a_run(home: Home) -> None:
    home.model({"ask": "Which week?"}, {"text": "a report"})
    session = home.new()
    file = home.path / "notes.md"
    file.write_text("x")
    assert home.run("send", session, "go").code == 5
    for more in (("--attach", str(file)), ("--ref", "run-1"), ("--agent", "other")):
        refused = home.run("send", session, "week 12", *more, "--json")
        assert (refused.code, refused.error["code"]) == (7, "conflict")
        assert f"{more[0]} can only go with a prompt, and this would be an answer to" in refused.error["message"]
        assert re.search(rf"TEXT {more[0]} \w+ --if-busy queue$", refused.error["hint"])
    assert len(home.messages(session)) == 2
    # Its own agent is no other one: that is said by whoever names it each time.
    agent = home.events(f"{session}/run-1", "run.accepted")[0]["payload"]["agent"]
    assert home.run("send", session, "week 12", "--agent", agent).code == 0
    assert not (home.session_dir(session) / "attachments").exists()


def test_a_later_run_learns_what_was_attached_and_not_what_it_said(home: Home) -> None:
    home.tool("told", "cat")
    home.model({"text": "Seen."})
    session = home.new()
    file = home.path / "notes.md"
    file.write_text("the contents")
    assert home.run("send", session, "read this", "--attach", str(file)).code == 0
    home.model({"ifContains": "the contents", "text": "It is told again."}, {"text": "It is not."})
    assert home.run("send", session, "and now?").text == "It is not.\n"


def test_a_prompt_that_is_refused_leaves_no_file(home: Home) -> None:
    session = home.new()
    file = home.path / "notes.md"
    file.write_text("x")
    home.config.write_text("")
    assert home.run("send", session, "go", "--attach", str(file)).code == 13
    assert home.run("send", session, "go", "--expect-seq", "7", "--attach", str(file)).code == 7
    assert not (home.session_dir(session) / "attachments").exists()


def test_a_check_looks_at_what_was_attached(home: Home) -> None:
    session = home.new()
    file = home.path / "notes.md"
    file.write_text("x")
    assert home.run("send", session, "go", "--attach", str(file)).code == 0
    assert home.run("check", session).code == 0
    (kept,) = (home.session_dir(session) / "attachments").iterdir()
    for spoil in (lambda: kept.write_text("y"), kept.unlink):
        spoil()
        found = home.run("check", session)
        assert found.code == 10
        assert kept.name in found.text
