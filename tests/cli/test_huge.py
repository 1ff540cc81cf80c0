"""Trees of a size that nobody has yet, in the memory of a small machine: case C17 with its numbers.

A gigabyte of two million records, a record of 100 MB, a hundred thousand sessions. What a command may read of them, at
any size, is in the tests of the store; `benchmarks/memory.py` has what each takes.

# covers A21; promise 16; case C17
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.records.codec import encode_line
from agentrun.store.tree import Tree
from agentrun.testing import trees

Home = Any

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

MEGABYTES = 600
RECORDS = 2_000_000
SESSIONS = 100_000
LONG = 100_000_000
MEMORY = Path("/dev/shm")


@pytest.fixture
def huge(home: Home) -> Iterator[Home]:
    """A home whose tree is gone after the test, in memory if that has room for it: pytest keeps what it made."""
    room = os.statvfs(MEMORY) if os.access(MEMORY, os.W_OK) else None
    has_room = room is not None and room.f_bavail * room.f_frsize > 4 << 30 and _free_memory() > 6 << 30
    with tempfile.TemporaryDirectory(dir=MEMORY if has_room else home.path) as place:
        home.root = Path(place, "root")
        home.env["AGENTRUN_ROOT"] = str(home.root)
        yield home
        # In a fraction of the time that Python takes for it.
        subprocess.run(["rm", "-rf", home.root], check=True)


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def _limited(home: Home, *words: str) -> str:
    """What a command prints that has 600 MB for all that it maps."""
    argv = ["/bin/sh", "-c", f'ulimit -v {MEGABYTES << 10}; exec "$@"', "sh", *home.argv(*words)]
    done = subprocess.run(argv, env=home.env, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (words, done.stderr[-500:])
    return done.stdout.decode()


def _goes_on(home: Home, session: str, last: int) -> None:
    """It can be listed, seen, and added to; a run goes on from it."""
    assert session in _limited(home, "ls")
    assert len(_limited(home, "show", session)) < 10_000
    messages = _limited(home, "show", session, "--messages", "--tail", "20", "--json").splitlines()
    assert json.loads(messages[-1])["seq"] == last
    shown = _limited(home, "show", session, "--messages", "--tail", "20")
    assert len(shown) < 2_000_000
    assert _limited(home, "send", session, "and now?") == "a report\n"
    _limited(home, "rename", session, "another")
    (added, _) = _limited(home, "show", session, "--messages", "--tail", "2", "--json").splitlines()
    assert json.loads(added)["seq"] == last + 1


def test_two_million_records_of_a_gigabyte(huge: Home) -> None:
    tree = Tree(str(huge.root), getpass.getuser())
    talk = tree.create_session(session_id="talk")
    trees.completed(talk)
    long = tree.fork_session(talk, 2)
    path = Path(long.directory.path)
    last = json.loads((path / "messages.jsonl").read_bytes().splitlines()[-1])
    head, tail = encode_line(last | {"seq": 4242424242, "text": "words " * 55}).split(b"4242424242")
    with (path / "messages.jsonl").open("ab") as log:
        for start in range(3, RECORDS + 1, 10_000):
            log.write(b"".join(b"%b%d%b" % (head, seq, tail) for seq in range(start, min(start + 10_000, RECORDS + 1))))
    assert (path / "messages.jsonl").stat().st_size > 900_000_000
    document = json.loads((path / "session.json").read_bytes())
    document["forkedFrom"]["seq"] = RECORDS
    (path / "session.json").write_text(json.dumps(document))
    _goes_on(huge, long.session_id, RECORDS)


def test_a_record_of_a_hundred_megabytes(huge: Home) -> None:
    talk = Tree(str(huge.root), getpass.getuser()).create_session(session_id="talk")
    trees.completed(talk)
    trees.completed(talk)
    path = Path(talk.directory.path, "messages.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    text = "words of it " * (LONG // 12)
    lines[2] = encode_line(json.loads(lines[2]) | {"text": text})
    path.write_bytes(b"".join(lines))
    left = f"of {len(text):,} characters are left out"
    assert left in _limited(huge, "show", "talk/2")
    assert left in _limited(huge, "show", "talk", "--messages", "--tail", "20")
    _goes_on(huge, "talk", 4)


def test_a_billion_bytes_of_a_tool(huge: Home) -> None:
    huge.tool("flood", "head -c 1000000000 /dev/zero; echo the last words >&2; exit 3")
    huge.model({"calls": [{"name": "flood"}]}, {"text": "a report"})
    session = huge.new()
    assert _limited(huge, "send", session, "go").startswith("a report\n")
    (finished,) = huge.events(session, "tool.finished")
    assert "exit 3" in finished["payload"]["error"]
    assert "the last words" in finished["payload"]["error"]
    assert "1000000000" in json.dumps(finished["payload"]).replace(",", "")
    kept = [path.stat().st_size for path in huge.run_dir(session).rglob("*") if path.is_file()]
    assert sum(kept) < 100_000_000
    assert len(_limited(huge, "show", f"{session}/1")) < 10_000


def test_a_hundred_thousand_sessions(huge: Home) -> None:
    tree = Tree(str(huge.root), getpass.getuser())
    first = tree.create_session(title="one of many", session_id="session-000000")
    place = Path(first.directory.path)
    document = (place / "session.json").read_bytes()
    for number in range(1, SESSIONS):
        fresh = f"{place.parent}/session-{number:06}"
        os.mkdir(fresh, 0o700)
        os.mkdir(f"{fresh}/runs", 0o700)
        for name, data in ("session.json", document), ("messages.jsonl", b""):
            fd = os.open(f"{fresh}/{name}", os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(fd, data.replace(b"session-000000", b"session-%06d" % number))
            os.close(fd)
    trees.completed(tree.session("session-054321"))
    # Also where the hint is lost that says which one changed last.
    for _ in range(2):
        assert _limited(huge, "ls", "--limit", "5").splitlines()[0].split()[0] == "session-054321"
        (place.parent.parent / "activity.jsonl").unlink(missing_ok=True)
    _goes_on(huge, "session-054321", 2)
    assert len(_limited(huge, "ls", "--limit", "1000").splitlines()) == 1000
    assert _limited(huge, "new", "--id", "later") == "later\n"
