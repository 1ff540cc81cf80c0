"""Large trees to measure on, 3 GB of them. Each is made once, under `.trees/`, and stays there until `make clean`.

They are written as agentrun would have left them: a session that it made is copied under other names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from frame import HERE, Size

from agentrun.records.codec import encode_line
from agentrun.store.redo import writing
from agentrun.store.tree import Tree
from agentrun.testing.trees import accept, completed

FOLDER = HERE / ".trees"
ACCOUNT = "ann"
SENTENCE = (
    "Revenue of the live-stream evening fell by a fifth against the week before; nobody knows yet why it did so. "
)
AT = "2026-01-02T03:04:05.678Z"


def long_session(size: Size) -> tuple[Path, int]:
    """A root with the session `long` of a million messages in 300 MB, and how many there are."""
    count = size.of(1_000_000, 2_000)
    return _made("long-session", size, lambda root: _write_long_session(root, count)), count


def many_sessions(size: Size, full: int) -> tuple[Path, int]:
    """A root with that many sessions; the last 10,000 of them have a run that completed. And how many there are."""
    count = size.of(full, full // 200)
    return _made(f"{full}-sessions", size, lambda root: _write_sessions(root, count, with_run=10_000)), count


def many_runs(size: Size) -> tuple[Path, int]:
    """A root with the session `busy` of 10,000 completed runs, and `fresh` with one. And how many there are."""
    count = size.of(10_000, 20)
    return _made("many-runs", size, lambda root: _write_runs(root, count)), count


def long_run(size: Size) -> tuple[Path, int]:
    """A root with the session `worked`, whose run is over and had 10,000 operations. And how many there are."""
    count = size.of(10_000, 50)
    return _made("long-run", size, lambda root: _write_operations(root, count)), count


def messages(count: int) -> Iterator[str]:
    """The lines of a conversation, without newlines, of 300 bytes each."""
    head = '{"seq":%d,"sessionId":"long","runId":"run-1","role":"user","mode":"follow-up","text":"%d: '
    tail = '","at":"' + AT + '","key":null,"actor":{"user":"ann","host":"tea","pid":4121}}'
    for seq in range(1, count + 1):
        yield (head % (seq, seq)) + SENTENCE + tail


def account_directory(root: Path) -> Path:
    """Where the account's files are."""
    return root / "accounts" / ACCOUNT


def session_directory(root: Path, session_id: str) -> Path:
    """Where a session's files are."""
    return account_directory(root) / "sessions" / session_id


def _made(name: str, size: Size, write: Callable[[Path], None]) -> Path:
    if size.is_small:
        root = size.folder / name
        write(root)
        return root
    root, stamp = FOLDER / name, FOLDER / f"{name}.made-by"
    made_by = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text("utf-8") == made_by):
        shutil.rmtree(root, ignore_errors=True)
        write(root)
        # Last, and with what it was made by: one that was interrupted, or that is of another version, is made again.
        stamp.write_text(made_by, "utf-8")
        # Nothing of the making is to be written out while somebody is measured.
        os.sync()
    return root


def _write_long_session(root: Path, count: int) -> None:
    session = Tree(str(root), ACCOUNT).create_session(session_id="long")
    run_id = accept(session).run_id
    log = session_directory(root, "long") / "messages.jsonl"
    first = log.read_text("utf-8")
    with log.open("w", encoding="utf-8") as file:
        file.write(first)
        for number, line in enumerate(messages(count), 1):
            if number > 1:
                file.write(line + "\n")
    assert run_id == "run-1"


def _write_sessions(root: Path, count: int, with_run: int) -> None:
    tree = Tree(str(root), ACCOUNT)
    empty, ended = tree.create_session(title="nothing yet"), tree.create_session(title="the evening's figures")
    completed(ended, "analyse why revenue dropped", SENTENCE)
    directory = account_directory(root) / "sessions"
    forms = {each.session_id: _files(directory / each.session_id) for each in (empty, ended)}
    names = []
    for number in range(count - 2):
        source = (ended if number >= count - 2 - with_run else empty).session_id
        name = f"session-{20260102000000 + number}-{number % 46656:06x}"
        names.append(name)
        _copy(directory / name, forms[source], source, name)
    with (account_directory(root) / "activity.jsonl").open("ab") as file:
        for name in names:
            file.write(encode_line({"sessionId": name, "at": AT}))


def _write_runs(root: Path, count: int) -> None:
    tree = Tree(str(root), ACCOUNT)
    completed(tree.create_session(session_id="fresh"), "go", SENTENCE)
    completed(tree.create_session(session_id="busy"), "go", SENTENCE)
    directory = session_directory(root, "busy")
    form = _files(directory / "runs" / "run-1")
    said = [json.loads(line) for line in (directory / "messages.jsonl").read_bytes().splitlines()]
    with (directory / "messages.jsonl").open("ab") as file:
        for number in range(2, count + 1):
            _copy(directory / "runs" / f"run-{number}", form, "run-1", f"run-{number}")
            for index, doc in enumerate(said):
                seq = (number - 1) * len(said) + index + 1
                file.write(encode_line(doc | {"seq": seq, "runId": f"run-{number}"}))


def _write_operations(root: Path, count: int) -> None:
    session = Tree(str(root), ACCOUNT).create_session(session_id="worked")
    completed(session, "go", SENTENCE)
    run = session_directory(root, "worked") / "runs" / "run-1"
    lines = [json.loads(line) for line in (run / "operations.jsonl").read_bytes().splitlines()]
    last = lines.pop()
    for number in range(2, count):
        about = {"sessionId": "worked", "runId": "run-1", "at": AT, "generation": 1}
        started = {"operationId": f"op-{number}", "turnId": f"turn-{number}", "model": "m", "attempt": 1}
        ended = {"operationId": f"op-{number}", "status": "succeeded", "text": SENTENCE, "attempt": 1}
        for kind, payload in (("model.request.started", started), ("model.request.finished", ended)):
            lines.append(about | {"seq": len(lines) + 1, "type": kind, "payload": payload})
    lines.append(last | {"seq": len(lines) + 1})
    (run / "operations.jsonl").write_bytes(b"".join(map(encode_line, lines)))
    with writing(session) as writer:
        session.run("run-1").rewrite_snapshot(writer)


def _files(directory: Path) -> dict[str, bytes | None]:
    """What is in a directory by relative path; None is a directory."""
    found: dict[str, bytes | None] = {}
    for path in sorted(directory.rglob("*")):
        found[str(path.relative_to(directory))] = None if path.is_dir() else path.read_bytes()
    return found


def _copy(directory: Path, form: dict[str, bytes | None], source: str, name: str) -> None:
    os.mkdir(directory, 0o700)
    for relative, data in form.items():
        path = f"{directory}/{relative}"
        if data is None:
            os.mkdir(path, 0o700)
            continue
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, data.replace(source.encode(), name.encode()))
        os.close(fd)
