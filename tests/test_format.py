"""The format for ever: a tree of each format version is read as it was, goes on, and keeps what is not known here.

# covers A19 A29
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm

from agentrun.testing.trees import fingerprint

pytestmark = pytest.mark.slow

GOLDEN = sorted((Path(__file__).parent / "golden").glob("format-*"))
# It is said of a run as it is now; time goes on.
OF_TODAY = {"overdue"}
DENIED = 9
UNKNOWN = {"xFromLater": {"a": [1, "ü", None]}}
CONFIG = """\
default_agent = "analyst"
[agents.analyst]
model = "scripted:script.json"
"""


class Golden:
    """A copy of a golden tree, private as it was, and commands on it."""

    def __init__(self, kept: Path, place: Path) -> None:
        self.kept = kept
        self.place = place
        self.root = place / "root"
        shutil.copytree(kept / "root", self.root)
        self.sessions = self.root / "accounts" / "ann" / "sessions"
        for session in self.sessions.iterdir():
            (session / "runs").mkdir(exist_ok=True)  # git keeps no directory that is empty
        for path in [self.root, *self.root.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        (place / "agentrun.toml").write_text(CONFIG)
        (place / "script.json").write_text('{"turns": [{"text": "Going on."}]}')

    def run(self, *words: str) -> Any:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.place), "LANG": "C.UTF-8"}
        if "PYTHONPATH" in os.environ:
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        options = ["--root", str(self.root), "--account", "ann", "--config", str(self.place / "agentrun.toml")]
        return warm.run([*words, *options, "--json"], environment, timeout=90)

    def said(self, words: str) -> list[Any]:
        done = self.run(*words.split())
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.decode().splitlines()]


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


def _missing(expected: Any, found: Any, where: str) -> Iterator[str]:
    """What `found` says otherwise, or does not say; it may say more."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            if key not in OF_TODAY:
                yield from _missing(value, found.get(key, "not said"), f"{where}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _missing(one, other, f"{where}[{number}]")
    elif expected != found:
        yield f"{where} was {expected!r} and is {found!r}"


def test_a_tree_is_read_as_when_it_was_made(golden: Golden) -> None:
    before = fingerprint(str(golden.root))
    wrong = []
    for words, lines in json.loads((golden.kept / "expected.json").read_bytes()).items():
        wrong += _missing([json.loads(line) for line in lines], golden.said(words), words)
    assert not wrong, "\n".join(wrong)
    assert golden.said("check") == []
    assert fingerprint(str(golden.root)) == before


def test_a_tree_goes_on_and_nothing_in_it_is_written_anew(golden: Golden) -> None:
    logs = {path: path.read_bytes() for path in golden.root.rglob("*.jsonl")}
    assert golden.said("send history more")[-1]["type"] == "run.finished"
    golden.said("rename history another")
    golden.said("unarchive shelved")
    assert golden.run("cancel", "open", "--wait").returncode == 0
    # The same with the same key gives the first result again, also that of then.
    again = golden.run("steer", "history/run-3", "only new products", "--key", "k2")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["messageSeq"] < 12
    assert all(path.read_bytes().startswith(data) for path, data in logs.items())
    assert golden.said("check") == []


def test_what_is_not_known_here_survives(golden: Golden) -> None:
    history = golden.sessions / "history"
    for path in (history / "session.json", history / "summary.json", history / "runs" / "run-5" / "run.json"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | UNKNOWN, ensure_ascii=False), "utf-8")
    with (history / "messages.jsonl").open("r+b") as file:
        lines = file.read().splitlines(keepends=True)
        last = json.loads(lines[-1]) | UNKNOWN
        file.seek(0)
        file.truncate()
        file.write(b"".join(lines[:-1]) + json.dumps(last, ensure_ascii=False).encode() + b"\n")
    event = json.loads((history / "runs" / "run-5" / "operations.jsonl").read_bytes().splitlines()[-1])
    event |= {"seq": event["seq"] + 1, "type": "run.admired", "payload": {"by": "all"}} | UNKNOWN
    with (history / "runs" / "run-5" / "operations.jsonl").open("ab") as file:
        file.write(json.dumps(event).encode() + b"\n")
    golden.said("rename history another")
    golden.said("send history more")
    assert json.loads((history / "session.json").read_bytes())["xFromLater"] == UNKNOWN["xFromLater"]
    assert json.loads((history / "summary.json").read_bytes())["xFromLater"] == UNKNOWN["xFromLater"]
    assert golden.said("show history/5 --operations --tail 1") == [event]
    (message,) = [each for each in golden.said("show history --messages --tail 100") if "xFromLater" in each]
    assert message == last
    # Also in what is made of it.
    (forked,) = golden.said("fork history")
    assert last["xFromLater"] in _unknown(golden.sessions / forked["session"]["sessionId"] / "messages.jsonl")
    archive = golden.place / "history.tar"
    assert golden.run("export", "history", "--output", str(archive)).returncode == 0
    golden.said(f"import {archive} --as again")
    for name in ("messages.jsonl", "runs/run-5/operations.jsonl", "session.json"):
        assert UNKNOWN["xFromLater"] in _unknown(golden.sessions / "again" / name), name
    assert [finding for finding in golden.said("check") if finding["finding"]["wrong"]] == []


def _unknown(path: Path) -> list[Any]:
    """What stands in the field that nobody here knows, of one document or of each line."""
    data = path.read_bytes()
    docs = map(json.loads, data.splitlines()) if path.suffix == ".jsonl" else [json.loads(data)]
    return [doc.get("xFromLater") for doc in docs]


WRITERS = (
    "send history x", "send open 12", "steer open x", "cancel open", "rename history x", "archive history",
    "unarchive shelved", "compact history", "resume history", "rm history --yes",
    "reconcile history/3 op-2 --as failed",
)  # fmt: skip


def test_a_newer_version_is_read_and_never_written(golden: Golden) -> None:
    for path in golden.sessions.glob("*/session.json"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"formatVersion": 99}))
    before = fingerprint(str(golden.root))
    assert golden.said("show history")[0]["session"]["title"]
    assert golden.said("show history --messages --tail 100")
    assert len(golden.said("ls")) == 3
    assert len(golden.said("ls --archived")) == 1
    for words in WRITERS:
        refused = golden.run(*words.split())
        assert refused.returncode == DENIED, (words, refused)
        said = json.loads(refused.stderr.splitlines()[-1])["error"]["message"]
        assert "format 99" in said, said
        assert "read-only here" in said, said
        assert refused.stdout == b""
    kinds = {finding["finding"]["kind"] for finding in golden.said("check --repair")}
    assert kinds == {"newer"}
    assert fingerprint(str(golden.root)) == before
