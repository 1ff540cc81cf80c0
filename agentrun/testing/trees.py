"""Sessions and runs in every stage of their life, on a real tree, made through the store's own functions."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from agentrun.lifecycle.winding_down import wind_down
from agentrun.records.codec import Doc
from agentrun.records.lease import Lease
from agentrun.records.message import QUESTION, Message
from agentrun.records.run import Run
from agentrun.states import EventType, RunStatus
from agentrun.store import closing, inbox, layout
from agentrun.store.inbox import Input, Order
from agentrun.store.locks import take_liveness
from agentrun.store.redo import recording, writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

E = EventType

ACTOR: Doc = {"user": "ann", "host": "tea", "pid": 4121}
LEASE_SECONDS = 15.0


def said(text: str, key: str | None = None) -> Input:
    """What somebody says."""
    return Input(text, ACTOR, key)


def accept(session: SessionDir, text: str = "go", *, key: str | None = None, order: Order | None = None) -> RunDir:
    """A new run of `session`, accepted and executed by nobody."""
    with writing(session) as writer:
        _, run_dir = inbox.accept_prompt(writer, said(text, key), order or Order())
    return run_dir


def add(session: SessionDir, run_id: str, mode: str, text: str, key: str | None = None) -> Message:
    """A steer or follow-up to a run."""
    with writing(session) as writer:
        return inbox.add_input(writer, run_id, mode, said(text, key))


def answer(session: SessionDir, run_id: str, text: str) -> Message:
    """The answer to the question that a run waits for."""
    with writing(session) as writer:
        return inbox.answer(writer, session.run(run_id), said(text))


def cancel(session: SessionDir, run_id: str, reason: str = "enough") -> Run:
    """Stores the intent to stop a run."""
    with writing(session) as writer:
        return inbox.request_stop(
            writer, session.run(run_id), actor=ACTOR, reason=reason, intent="cancel", via="command"
        )


class Executor:
    """Executes a run step by step, as a test says. It holds the run's lock until `die`, `complete` or `wind_down`."""

    def __init__(self, session: SessionDir, run_id: str) -> None:
        self.session = session
        self.run_dir = session.run(run_id)
        with writing(session) as writer:
            liveness = take_liveness(self.run_dir.directory)
            assert liveness is not None, f"{run_id} is executed already"
            self._liveness = liveness
            self.lease: Lease = self.run_dir.claim(writer, lease_seconds=LEASE_SECONDS, timeout=60)

    def append(self, kind: EventType, /, **payload: Any) -> Run:
        """Appends an event under the lease."""
        with recording(self.session) as writer:
            return self.run_dir.append(self.lease, writer, kind, payload)

    def deliver(self, turn_id: str = "turn-1") -> None:
        """Delivers what waits."""
        with recording(self.session) as writer:
            run = self.run_dir.check(self.lease, writer)
            seqs = [message.seq for message in writer.undelivered(run)]
            payload = {"messageSeqs": seqs, "mode": "prompt", "turnId": turn_id}
            self.run_dir.append(self.lease, writer, E.INPUT_DELIVERED, payload)

    def ask_model(self, operation_id: str = "op-1", turn_id: str = "turn-1") -> None:
        """A model request and its reply."""
        self.append(E.MODEL_REQUEST_STARTED, operationId=operation_id, turnId=turn_id, model="m", attempt=1)
        usage = {"inputTokens": 10, "outputTokens": 5}
        finished: Doc = {"operationId": operation_id, "status": "succeeded", "text": "ok", "usage": usage}
        self.append(E.MODEL_REQUEST_FINISHED, attempt=1, **finished)

    def start_tool(self, operation_id: str = "op-2", effect: str = "write") -> None:
        """A tool call, registered and started."""
        names: Doc = {"operationId": operation_id, "toolCallId": f"call-{operation_id}", "toolName": "export"}
        self.append(E.TOOL_REGISTERED, turnId="turn-1", arguments={"week": 12}, effect=effect, **names)
        self.append(E.TOOL_STARTED, attempt=1, **names)

    def ask(self, question_id: str = "question-1", kind: str = "question", *, message: bool = True) -> None:
        """Asks the user; `message=False` leaves out the line in the conversation, as a crash would."""
        with recording(self.session) as writer:
            payload = {"questionId": question_id, "kind": kind, "text": "Which week?", "deadline": None}
            self.run_dir.append(self.lease, writer, E.RUN_WAITING_INPUT, payload)
            if message:
                writer.append_message(
                    self.run_dir.run_id, "assistant", QUESTION, "Which week?", question_id=question_id
                )
            self.run_dir.write_snapshot(writer)

    def write_draft(self, text: str) -> None:
        """Writes a draft."""
        with recording(self.session) as writer:
            self.run_dir.write_draft(self.lease, writer, text, fresh=True)

    def keep(self, data: bytes) -> Doc:
        """Keeps bytes as a blob."""
        with recording(self.session) as writer:
            return self.run_dir.write_blob(self.lease, writer, io.BytesIO(data))

    def complete(self, report: str = "All is well.\n") -> Run:
        """Commits the report and publishes it."""
        kept = self.keep(report.encode())
        with writing(self.session) as writer:
            run = closing.finish(writer, self.lease, self.run_dir, RunStatus.COMPLETED, report=kept)
        self.die()
        return run

    def commit_only(self, report: str = "All is well.\n") -> None:
        """Commits the report and dies before anything is published."""
        kept = self.keep(report.encode())
        self.append(E.RUN_FINISHED, terminalStatus="completed", reason=None, report=kept, returnedInputs=[])
        self.die()

    def wind_down(self) -> Run:
        """Ends a run that was told to stop."""
        with writing(self.session) as writer:
            run = wind_down(writer, self.lease, self.run_dir)
        self.die()
        return run

    def die(self) -> None:
        """The process is gone: its lock is free, and nothing else has changed."""
        if self._liveness is not None:
            os.close(self._liveness)
        self._liveness = None  # type: ignore[assignment]


def completed(session: SessionDir, text: str = "go", report: str = "All is well.\n") -> str:
    """A run that was accepted, executed and completed; its id."""
    run_dir = accept(session, text)
    executor = Executor(session, run_dir.run_id)
    executor.deliver()
    executor.ask_model()
    executor.complete(report)
    return run_dir.run_id


def whole_life(session: SessionDir) -> None:
    """Leaves one of everything that a session can hold: all kinds of files, inputs and ends."""
    completed(session)
    run_id = accept(session, "again", key="k1").run_id
    executor = Executor(session, run_id)
    executor.deliver()
    executor.ask_model()
    executor.write_draft("so far")
    executor.start_tool()
    executor.append(E.TOOL_REMOTE_ID, operationId="op-2", remoteId="export-7")
    executor.ask()
    answer(session, run_id, "week 12")
    add(session, run_id, "steer", "not that way")
    waiting = accept(session, "behind it").run_id
    cancel(session, waiting)
    cancel(session, run_id)
    executor.run_dir.keep_stale(executor.lease, {"type": "tool.finished"})
    executor.wind_down()


class Found(NamedTuple):
    """What lies at one path: its kind and permissions, its content's hash (a link's target), its time of change."""

    mode: str
    content: str
    changed: int


def fingerprint(root: str | os.PathLike[str]) -> dict[str, Found]:
    """Everything below `root`, by path; nothing is followed. Equal ones: nothing was written in between."""
    found: dict[str, Found] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            about = path.lstat()
            content = ""
            if stat.S_ISREG(about.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(about.st_mode):
                content = os.readlink(path)
            # A directory's time changes with its names, and those are listed.
            changed = 0 if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns
            found[str(path.relative_to(root))] = Found(stat.filemode(about.st_mode), content, changed)
    return found


def run_path(session: SessionDir, run_id: str, *names: str) -> Path:
    """Where something of a run lies."""
    return Path(session.directory.path, layout.RUNS, run_id, *names)
