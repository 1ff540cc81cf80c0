"""agentrun's part in measurements of appending: a run that goes on, with some history, under this process's lease."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from agentrun.records.codec import encode_line
from agentrun.states import EventType
from agentrun.store.redo import recording
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept

# What a turn with one call leaves, but for the large texts.
TURN = (
    ("model.request.started", {"turnId": "turn-1", "model": "m", "attempt": 1}),
    ("model.request.finished", {"status": "succeeded", "text": "next", "toolCalls": [], "attempt": 1}),
)


class Going:
    """A run of a new session, executed by this process, with that many events behind it."""

    def __init__(self, root: str, history: int) -> None:
        tree = Tree(root)
        made = tree.create_session()
        run_id = accept(made).run_id
        self._executor = Executor(made, run_id)
        self._executor.append(EventType.MODEL_REQUEST_STARTED, operationId="op-0", model="m", attempt=1)
        self.session = tree.session(made.session_id)
        self.run_dir = self.session.run(run_id)
        self.lease = self._executor.lease
        directory = Path(self.run_dir.directory.path)
        log = directory / "operations.jsonl"
        first = len(log.read_bytes().splitlines()) + 1
        with log.open("ab") as file:
            for line in _lines(self.session.session_id, run_id, first, history):
                file.write(line)
            os.fsync(file.fileno())
        # The snapshot as it is beside so long a log: else the first append would read all of it.
        snapshot = json.loads((directory / "run.json").read_bytes())
        snapshot["appliedSeq"] = first - 1 + history
        (directory / "run.json").write_text(json.dumps(snapshot), "utf-8")
        self.append(0)

    def append(self, number: int, *, durable: bool = True) -> None:
        """An event as the executor appends one: under the session's lock, the lease and the status checked."""
        kind = EventType.TOOL_REMOTE_ID if durable else EventType.TOOL_PROGRESS
        payload = {"operationId": "op-0", "remoteId" if durable else "text": f"export-{number:08}"}
        with recording(self.session) as writer:
            self.run_dir.append(self.lease, writer, kind, payload)


def a_line(number: int) -> bytes:
    """A line as `Going.append` writes it, for those that write the same without agentrun."""
    doc = {
        "sessionId": "session-20260102030405-abcdef", "runId": "run-1", "seq": number, "type": "tool.remote_id",
        "at": "2026-01-02T03:04:05.678Z", "generation": 1,
        "payload": {"operationId": "op-0", "remoteId": f"export-{number:08}"},
    }  # fmt: skip
    return encode_line(doc)


def _lines(session_id: str, run_id: str, first: int, count: int) -> Iterator[bytes]:
    texts = []
    for kind, payload in TURN:
        doc = {
            "sessionId": session_id, "runId": run_id, "seq": "@", "type": kind, "at": "2026-01-02T03:04:05.678Z",
            "generation": 1, "payload": {"operationId": "op-@", **payload},
        }  # fmt: skip
        texts.append(encode_line(doc).decode("utf-8").replace('"@"', "%d", 1).replace("op-@", "op-%d"))
    for number in range(count):
        yield (texts[number % 2] % (first + number, 1 + number // 2)).encode("ascii")
