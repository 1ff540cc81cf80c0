"""A file or a line that is longer than any that is written here is damage, costs no memory, and hides nothing else."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path

import pytest

from agentrun.cli.command_line import run
from agentrun.errors import CorruptRecord
from agentrun.store import lengths
from agentrun.store.log import Log
from agentrun.store.numbers import is_overwritten
from agentrun.store.tree import Tree
from agentrun.testing import trees

LONGEST = 1 << 21
COMMANDS = (
    ["ls", "--json"], ["show", "bad"], ["show", "bad/1", "--json"], ["show", "bad", "--messages"],
    ["show", "good", "--json"], ["search", "hello"], ["rename", "bad", "x"],
    ["check", "--json"], ["rename", "good", "x"],
)  # fmt: skip
BUG, STORAGE = 70, 11
# A hint, and what is looked at for its name, or for its end.
NOT_READ = ("activity.jsonl", "cancel", "report.draft.md", "run-2.generation-1.jsonl")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Of this process's user: the commands are called for him."""
    return Tree(str(tmp_path / "root"))


@pytest.fixture
def sessions(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions, `good` and `bad`, where nothing may be longer than 2 MiB."""
    for name in ("good", "bad"):
        trees.whole_life(tree.create_session(title="t", session_id=name))
    monkeypatch.setattr(lengths, "LONGEST", LONGEST)
    monkeypatch.setenv("AGENTRUN_ROOT", tree.root)
    monkeypatch.setenv("AGENTRUN_CONFIG", "")
    return Path(tree.path_of("good")).parent


def lengthened(path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    os.truncate(path, 4 * LONGEST)


@pytest.mark.slow
def test_one_endless_file_hides_no_other_session(sessions: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # covers promises 2, 16
    kept = {
        path: path.read_bytes() for path in sessions.parent.rglob("*") if path.is_file() and "good" not in path.parts
    }
    bad = sessions / "bad"
    extra = [bad / "summary.json", bad / "active", bad / "runs/run-1/lease.json", sessions.parent / "activity.jsonl"]
    wrong = []
    for path in dict.fromkeys([*kept, *extra]):
        lengthened(path)
        for words in COMMANDS:
            code = run(words)
            out, err = capfd.readouterr()
            if code in (BUG, STORAGE) or (code and "good" in words):
                wrong.append(f"{path}: {words}: {code} {err[-300:]}")
            if words[0] == "ls" and "good" not in {
                json.loads(line)["session"]["sessionId"] for line in out.splitlines()
            }:
                wrong.append(f"{path}: good is hidden: {code} {err[-300:]}")
            if words[0] == "check" and path.name not in NOT_READ and str(path.relative_to(sessions.parent)) not in out:
                wrong.append(f"{path}: check says nothing of it: {code} {out[-300:]} {err[-300:]}")
        if path in kept:
            path.write_bytes(kept[path])
        else:
            path.unlink()
    assert not wrong, "\n".join(wrong)


def test_a_line_without_an_end_is_named_behind_those_that_can_be_read(sessions: Path, tree: Tree) -> None:
    # covers promises 2, 16
    path = sessions / "bad" / "messages.jsonl"
    before, count = path.stat().st_size, path.read_bytes().count(b"\n")
    lengthened(path)
    log = Log(tree.session("bad").directory, "messages.jsonl")
    numbers = (doc["seq"] for _, doc in log.forward(lambda doc: doc))
    assert list(islice(numbers, count)) == list(range(1, count + 1))
    for look in (lambda: next(numbers), lambda: next(log.backward(lambda doc: doc)), log.last_seq, log.next_seq):
        with pytest.raises(CorruptRecord, match="which is no record") as damage:
            look()
        assert damage.value.path == str(path)
    with pytest.raises(CorruptRecord, match=f"at byte {before} begins"):
        list(log.forward(dict))
    assert path.stat().st_size == 4 * LONGEST


def test_bytes_that_were_overwritten_are_looked_at_one_record_after_the_other() -> None:
    line = b'{"seq":1}'
    assert is_overwritten(line + b"\0" + line + b"\0")
    for torn in (b"", b"\0", b"\0" * 50_000_000, line, line + b"\0" + line, line + b"\0\0", b"x\0" * 10):
        assert not is_overwritten(torn)
