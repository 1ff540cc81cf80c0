"""`export --format archive` and `import`: sessions move from tree to tree in pipes and files, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentrun.testing.trees import fingerprint
from tests.cli.conftest import Home

pytestmark = pytest.mark.slow


def account(home: Home, root: str = "root") -> Path:
    (found,) = (home.path / root / "accounts").iterdir()
    return found


def content(home: Home, root: str) -> dict[str, tuple[str, str]]:
    found = fingerprint(account(home, root) / "sessions")
    # What tools make has the modes that they give it; agentrun makes its own private again.
    return {path: (each.mode[0], each.content) for path, each in found.items()}


def test_a_session_goes_through_a_pipe_into_another_tree(home: Home) -> None:
    home.tool("note", 'cat > "$AGENTRUN_SCRATCH/note"; mkdir "$AGENTRUN_SCRATCH/empty"; echo done')
    home.model({"text": "I note.", "calls": [{"name": "note"}]}, {"text": "Noted."}, {"text": "More."})
    session = home.new("one")
    assert home.run("send", session, "go", "--key", "k").code == 0
    moved = home.shell(
        'umask 0; agentrun export "$1" --format archive | agentrun --root "$2" import -', session, f"{home.path}/else"
    )
    assert (moved.code, moved.text, moved.said) == (0, f"{session}\n", "")
    assert content(home, "else") == content(home, "root")
    modes = {each.mode for each in fingerprint(home.path / "else").values()}
    assert modes == {"drwx------", "-rw-------"}
    there = ("--root", str(home.path / "else"))
    assert home.run("check", *there).code == 0
    assert home.run("show", session, "--report", *there).text == "Noted.\n"
    assert home.run("send", session, "go", "--key", "k", *there).code == 0
    assert home.run("send", session, "and on", *there).code == 0
    assert home.run("show", session, "--json", *there).docs[0]["runs"][0]["runId"] == "run-2"


def test_a_whole_account_goes_into_one_file_but_for_what_goes_on(home: Home) -> None:
    home.tool("slow", home.gate())
    first = home.new("one")
    assert home.run("send", first, "go").code == 0
    home.model({"text": "", "calls": [{"name": "slow"}]}, {"text": "x"})
    busy = home.new("two")
    run = home.detach(busy, "go")
    home.wait_for_event(run, "tool.started")
    path = home.path / "all.tar"
    refused = home.run("export", busy, "--format", "archive", "--json")
    assert (refused.code, refused.out, refused.error["code"]) == (7, b"", "conflict")
    assert refused.error["runId"] == "run-1"
    done = home.run("export", "--all", "-o", str(path), "--json")
    assert done.code == 7
    assert f"{busy}/run-1 is running" in done.said
    assert done.docs[0]["exported"]["sessionIds"] == [first]
    home.open_gate()
    assert home.run("wait", run).code == 0
    assert home.run("export", "--all", "-o", str(path), "--overwrite").code == 0
    there = ("--root", str(home.path / "else"))
    taken = home.run("import", str(path), "--json", *there)
    assert [each["imported"]["sessionId"] for each in taken.docs] == sorted([first, busy])
    assert taken.docs[0]["imported"] == {
        "sessionId": first, "format": "archive", "from": str(path), "title": "one", "messages": 2, "runs": 1,
        "passedOver": {}, "hereAlready": False, "remarks": [],
    }  # fmt: skip
    assert content(home, "else") == content(home, "root")
    assert len(home.run("ls", "--json", *there).docs) == 2


def test_a_backup_comes_back_in_the_order_in_which_its_sessions_changed(home: Home) -> None:
    for name in ("m", "z", "a"):
        home.new("one", "--id", name)
    assert home.run("send", "m", "go").code == 0
    path = str(home.path / "all.tar")
    assert home.run("export", "--all", "-o", path).code == 0
    there = ("--root", str(home.path / "else"))
    assert home.run("import", path, *there).text == "a\nm\nz\n"
    order = [[each["session"]["sessionId"] for each in home.run("ls", "--json", *at).docs] for at in ((), there)]
    assert order == [["m", "a", "z"]] * 2
    # The same once more, as after an import that was cut off: what is here already is passed over, and said.
    again = home.run("import", path, *there)
    assert (again.code, again.text, again.said.count("is here already")) == (0, "a\nm\nz\n", 3)
    assert home.run("rename", "m", "mine", *there).code == 0
    again = home.run("import", path, *there)
    assert (again.code, again.out, "--root DIR" in again.said) == (7, b"", True)


def test_an_id_in_use_is_refused_and_another_can_be_chosen(home: Home) -> None:
    session = home.new("one")
    assert home.run("send", session, "go").code == 0
    path = str(home.path / "a.tar")
    assert home.run("export", session, "-o", path).code == 0
    before = content(home, "root")
    again = home.run("import", path, "--json")
    assert (again.code, again.docs[0]["imported"]["hereAlready"]) == (0, True)
    assert content(home, "root") == before
    assert home.run("rename", session, "other").code == 0
    before = content(home, "root")
    again = home.run("import", path)
    assert (again.code, again.out) == (7, b"")
    assert "--as ID" in again.said
    assert content(home, "root") == before
    assert home.run("import", path, "--as", "copy").text == "copy\n"
    assert home.run("check").code == 0
    assert home.run("send", "copy", "and on").code == 0
    assert home.run("search", "a report", "--session", "copy").text.count("a report") == 2
    assert home.run("import", path, "--as", "../copy").code == 9


def test_what_runs_a_command_when_gone_on_with_is_told(home: Home) -> None:
    session = home.new("one", "--agent", "command:touch evil")
    path = str(home.path / "a.tar")
    assert home.run("export", session, "-o", path).code == 0
    taken = home.run("import", path, "--as", "copy")
    assert "going on with it would run 'command:touch evil'" in taken.said
    assert not Path("evil").exists()


def test_another_programs_file_comes_in_goes_on_and_goes_out(home: Home) -> None:
    path = home.path / "rollout-1.jsonl"
    items = [
        ("session_meta", {"id": "x", "cwd": "/", "cli_version": "1"}),
        (
            "response_item",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "count \x1b[2J"}]},
        ),
        ("response_item", {"type": "function_call", "name": "sh", "arguments": '{"c":"touch evil"}', "call_id": "k"}),
        ("response_item", {"type": "function_call_output", "call_id": "k", "output": "2"}),
        (
            "response_item",
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
        ),
        ("novelty", {}),
    ]
    rows = [{"timestamp": "2026-03-01T00:00:00Z", "type": kind, "payload": payload} for kind, payload in items]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = home.shell('agentrun import - --json < "$1" | jq -c .imported', str(path))
    taken = json.loads(done.text)
    assert {name: taken[name] for name in ("format", "from", "messages", "runs", "passedOver")} == {
        "format": "codex", "from": "-", "messages": 2, "runs": 1, "passedOver": {"novelty": 1}
    }  # fmt: skip
    session = taken["sessionId"]
    assert home.run("check").code == 0
    assert home.run("search", "count", "--session", session).text.count("run-1") == 1
    assert home.run("show", session, "--report").text == "Two.\n"
    exported = json.loads(home.run("export", session, "--format", "openai").out)
    assert [each["role"] for each in exported] == ["user", "assistant", "tool", "assistant"]
    assert home.run("send", session, "and on").text == "a report\n"
    assert home.run("fork", session).code == 0
    named = home.run("import", str(path), "--from", "codex", "--as", "mine")
    assert (named.code, named.text) == (0, "mine\n")
    assert "not taken in: 1 novelty" in named.said
    assert b"\x1b" not in home.run("show", "mine").out
    assert home.run("import", str(path), "--as", "mine").code == 7
    assert not (home.path / "evil").exists()
    assert not Path("evil").exists()


def test_a_terminal_gets_no_archive(home: Home) -> None:
    home.new("one")
    terminal = home.terminal("export", "@last", "--format", "archive")
    assert terminal.end() == 2
    assert "--output FILE.tar" in terminal.text


def test_errors_name_the_file_and_say_what_to_type(home: Home) -> None:
    (home.path / "text.tar").write_text("no archive")
    os.mkfifo(home.path / "fifo")
    home.new("one")
    for words, code, said in (
        (("import", "missing.tar"), 8, "missing.tar"),
        (("import", str(home.path / "text.tar"), "--format", "archive"), 10, "text.tar"),
        (("import", str(home.path / "fifo")), 2, "agentrun import -"),
        (("import", str(home.path)), 2, "no regular file"),
        (("import", str(home.path / "text.tar")), 2, "--format archive|claude-code|codex|llm"),
        (("import", "x", "--format", "zip"), 2, "the formats are: archive, claude-code, codex, llm"),
        (("export", "--all", "--format", "markdown"), 2, "--all takes whole sessions"),
        (("export",), 2, "agentrun export @last"),
        (("export", "@last", "--all"), 2, "A session, or --all"),
    ):
        done = home.run(*words)
        assert (done.code, done.out) == (code, b""), (words, done.said)
        assert said in done.said
        assert json.loads(home.run(*words, "--json").err)["error"]["message"]


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that cannot be read where it begins")
def test_a_disk_that_fails_while_a_file_is_read_is_no_bug(home: Home) -> None:
    # covers promises 12, 17
    for words in ([], ["--format", "archive"], ["--format", "codex"], ["--format", "llm"]):
        refused = home.run("import", "/proc/self/mem", *words)
        assert (refused.code, refused.text) == (11, ""), refused.said
        assert "/proc/self/mem: Input/output error (EIO)" in refused.said


@pytest.mark.slow
def test_what_has_no_end_and_is_nothing_that_can_be_imported_fills_no_disk(home: Home) -> None:
    # covers promise 16
    for form, says in (("", "nobody here can tell what this is"), ("--format archive", "is no archive")):
        refused = home.shell(f"agentrun import - {form} </dev/zero")
        assert (refused.code, refused.text) == (2, ""), refused.said
        assert says in refused.said
