"""The files of a session, read as docs/format.md says, with what is wrong in them."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fold import OVER, Fold, Record, accepted_by

# What a run begins with: a prompt, or the wish to have the history summarised.
BEGINNINGS = ("prompt", "compact")
# A line is damaged without these, and if one of these payload fields has another type.
MESSAGE: dict[str, type] = {"seq": int, "sessionId": str, "runId": str, "role": str, "text": str}
EVENT: dict[str, type] = {"seq": int, "sessionId": str, "runId": str, "type": str, "generation": int, "payload": dict}
PAYLOAD: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("messageSeq", "attempt"), (int,)),
    **dict.fromkeys(("messageSeqs", "references", "returnedInputs", "survivors"), (list,)),
    **dict.fromkeys(("owner", "config", "parentRun", "usage", "report"), (dict, type(None))),
}


class Findings:
    """What is wrong, and what is only worth a note."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.notes: list[str] = []

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    def note(self, applies: bool, text: str) -> None:
        if applies:
            self.notes.append(text)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the session's lock, so that all files are of one moment. Shared is enough to keep writers out."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether an executor holds the liveness lock of a run."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_bytes(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def as_object(data: bytes) -> Record | None:
    with suppress(ValueError):
        value = json.loads(data.decode())
        return value if isinstance(value, dict) else None
    return None


def read_document(path: Path, found: Findings) -> Record | None:
    data = read_bytes(path)
    if data is None:
        return None
    document = as_object(data)
    found.check(document is not None, f"{path}: is no JSON object")
    return document


def read_log(path: Path, fields: dict[str, type], owner: Record, found: Findings) -> list[Record]:
    """The lines that can be read. The others are named; what is behind the last newline was promised to nobody."""
    whole, _, tail = (read_bytes(path) or b"").rpartition(b"\n")
    found.note(bool(tail), f"{path}: {len(tail)} bytes behind the last newline, passed over")
    records, offset, seq = [], 0, 0
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        record = as_object(line)
        damage = damage_of(record, fields, owner)
        found.check(not damage, f"{path}: line {number} at byte {offset}: {damage}")
        seq += 1  # a line that cannot be read has used a number too
        if record and not damage:
            found.check(record["seq"] == seq, f"{path}: line {number} has seq {record['seq']}, not {seq}")
            seq = record["seq"]
            records.append(record)
        offset += len(line) + 1
    return records


def damage_of(record: Record | None, fields: dict[str, type], owner: Record) -> str:
    if record is None:
        return "is no JSON object"
    for name, wanted in fields.items():
        if type(record.get(name)) is not wanted:
            return f"{name} is {record.get(name)!r}"
    for name, value in owner.items():
        if record[name] != value:
            return f"belongs to {name} {record[name]!r}"
    for name, value in record.get("payload", {}).items():
        if name in PAYLOAD and type(value) not in PAYLOAD[name]:
            return f"{name} is {value!r}"
    return ""


class Run:
    """One run: its files as they are, and what its events make of it (`now`)."""

    def __init__(self, path: Path, session_id: str, prompt: Record | None, account: str, found: Findings) -> None:
        self.name, self.path, self.alive = path.name, path, is_held(path)
        self.stored = read_document(path / "run.json", found)
        self.events = read_log(path / "operations.jsonl", EVENT, {"sessionId": session_id, "runId": self.name}, found)
        self.report = read_bytes(path / "report.md")
        self.blobs = {blob.name: blob.read_bytes() for blob in sorted(path.glob("blobs/[0-9a-f]*"))}
        self.cancel, self.lease = (path / "cancel").exists(), (path / "lease.json").exists()
        first = self.events[0] if self.events and self.events[0]["type"] == "run.accepted" else None
        if first is None and self.events and prompt:
            first = accepted_by(prompt, account)
        self.fold = Fold(first) if first else None
        self.now: Record = self._replay(self.fold, found) if self.fold else {}

    def _replay(self, fold: Fold, found: Findings) -> Record:
        """Fold the events. On the way, hold the fold against run.json and against what run.finished says."""
        compared = self.stored is None
        for event in self.events:
            was_over = fold.run["status"] in OVER
            fold.apply(event)
            if fold.run["status"] in OVER and not was_over and not self.is_damaged:
                self._check_end(event["payload"], fold.snapshot(), found)
            if self.stored is not None and event["seq"] == self.stored.get("appliedSeq"):
                # One that was written before the damage knows more than what is left of the log.
                knows_more = max(fold.unread, 0) > self.stored.get("unreadEvents", 0)
                found.note(
                    knows_more, f"{self.name}: run.json is of before the damage, and tells what is not to be read"
                )
                if not knows_more:
                    self._compare(self.stored, fold.snapshot(), found)
                compared = True
        found.note(self.stored is None, f"{self.name}: no run.json; folded from its events")
        found.note(not compared, f"{self.name}: run.json goes further than the log, and the log counts")
        return fold.snapshot()

    def _compare(self, stored: Record, folded: Record, found: Findings) -> None:
        for name, value in folded.items():
            same = name in stored and stored[name] == value
            found.check(same, f"{self.name}: run.json: {name} is {stored.get(name)!r}, by its events {value!r}")

    def _check_end(self, said: Record, folded: Record, found: Findings) -> None:
        unresolved = [one["operationId"] for one in folded["unresolvedOperations"]]
        listed = said.get("unresolvedOperations")
        found.check(listed == unresolved, f"{self.name}: run.finished lists {listed}, unresolved are {unresolved}")
        found.check(
            said.get("usage") == folded["usage"], f"{self.name}: the usage of run.finished is not that of the events"
        )
        found.check(not folded["openOperations"], f"{self.name}: it is over with open operations")

    @property
    def is_damaged(self) -> bool:
        """Whether some of its events cannot be read: then not all that follows from them can be held against them."""
        return self.fold is not None and self.fold.unread > 0

    @property
    def is_over(self) -> bool:
        return self.now.get("status") in OVER

    @property
    def is_lost(self) -> bool:
        under_way = any(one["status"] == "running" for one in self.now["openOperations"])
        rests = self.now["status"] == "queued" or (self.now["status"] == "waiting_input" and not under_way)
        return not (self.alive or self.is_over or rests)


class Session:
    """A session's files as they were at one moment."""

    def __init__(self, path: Path, found: Findings) -> None:
        with locked(path):
            self.about = read_document(path / "session.json", found) or {}
            self.id: str = self.about.get("sessionId") or path.name
            lines = read_log(path / "messages.jsonl", MESSAGE, {"sessionId": self.id}, found)
            self.messages: list[Record] = [{"mode": None, "actor": None} | line for line in lines]
            # What was copied into a fork names runs of the session it comes from.
            copied = (self.about.get("forkedFrom") or {}).get("seq", 0)
            self.own = [message for message in self.messages if message["seq"] > copied]
            self.active = (read_bytes(path / "active") or b"").decode().strip() or None
            directories = sorted(path.glob("runs/run-*"), key=lambda one: (len(one.name), one.name))
            account = str(self.about.get("accountId"))
            prompts = {one["runId"]: one for one in self.own if one["mode"] in BEGINNINGS}
            self.runs = {one.name: Run(one, self.id, prompts.get(one.name), account, found) for one in directories}
            self.aside = sorted(str(one.relative_to(path)) for one in path.rglob("*.jsonl.torn-*"))
        version = self.about.get("formatVersion")
        found.check(version == 1, f"session.json: formatVersion is {version}")
        found.note(self.id != path.name, f"the directory is called {path.name}: a copy?")
