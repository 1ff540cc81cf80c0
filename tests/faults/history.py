"""Reads a tree as a stranger would, and says where it breaks what was promised.

Knows the documented files and fields alone and uses nothing of the package: what is wrong in both the writing and the
reading code of the store would otherwise look right. A `Ledger` collects what commands acknowledged; `problems` holds
the tree against it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Doc = dict[str, Any]

TERMINAL = {"completed", "failed", "cancelled", "timed_out"}
# Status -> event -> status. `run.finished` names its end itself.
MOVES: dict[str, dict[str, str]] = {
    "queued": {"run.started": "running", "run.finished": "*"},
    "running": {
        "run.waiting_input": "waiting_input",
        "run.compacting": "compacting",
        "run.reconciling": "reconciling",
        "run.cancel_requested": "cancelling",
        "run.failing": "cancelling",
        "run.finished": "*",
    },
    "waiting_input": {
        "run.input_received": "running",
        "run.reconciling": "reconciling",
        "run.cancel_requested": "cancelling",
        "run.failing": "cancelling",
    },
    "compacting": {
        "run.compacted": "running",
        "run.reconciling": "reconciling",
        "run.cancel_requested": "cancelling",
        "run.failing": "cancelling",
    },
    "reconciling": {
        "run.started": "running",
        "run.cancel_requested": "cancelling",
        "run.failing": "cancelling",
    },
    "cancelling": {"run.finished": "*"},
}
# Ends that are possible from each status.
ENDS = {"queued": {"cancelled"}, "running": {"completed"}, "cancelling": {"cancelled", "timed_out", "failed"}}
# What may still be recorded of a run that is over.
AFTER_THE_END = {"operation.reconciled", "operation.late_result"}
ENDING = {"timeout": "timed_out", "failure": "failed"}


class Ledger:
    """What was acknowledged: by a printed line, or by an exit code that means "done"."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.messages: dict[tuple[str, int], Doc] = {}
        self.events: dict[tuple[str, str, int], Doc] = {}
        self.ends: dict[tuple[str, str], str] = {}

    def copy(self) -> Ledger:
        """What was acknowledged until now."""
        copy = Ledger()
        copy.sessions, copy.messages = set(self.sessions), dict(self.messages)
        copy.events, copy.ends = dict(self.events), dict(self.ends)
        return copy

    def heard(self, stdout: str, *, text: str | None = None) -> None:
        """Takes down what a command with `--json` printed; `text` is what it was told to say."""
        for line in stdout.splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # cut off by a kill: nobody can read an acknowledgement out of it
            doc = json.loads(line)
            if doc.get("type") == "accepted":
                accepted = {"runId": doc["runId"], "mode": doc["mode"], "text": text}
                self.messages[doc["sessionId"], doc["messageSeq"]] = accepted
            elif "payload" in doc:
                self.events[doc["sessionId"], doc["runId"], doc["seq"]] = doc
            elif "role" in doc:
                self.messages[doc["sessionId"], doc["seq"]] = doc
            elif "session" in doc:
                self.sessions.add(doc["session"]["sessionId"])
                for run in doc.get("runs", ()):
                    self._told(run)
            elif "runId" in doc and "createdAt" in doc:
                self._told(doc)

    def _told(self, run: Doc) -> None:
        if run["status"] in TERMINAL:
            self.ends[run["sessionId"], run["runId"]] = run["status"]


class Operation(NamedTuple):
    """One model request or tool call, as its events tell it."""

    name: str
    effect: str | None
    status: str
    dispatched: int = 0
    may_have_effects: bool = False
    settled: bool = False

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "running")

    @property
    def is_unresolved(self) -> bool:
        unsure = self.effect == "write" and self.may_have_effects and not self.settled and not self.is_open
        return self.status == "unknown" or unsure


class Run:
    """One run, folded from its events; what is wrong with it is in `faults`."""

    def __init__(self, path: Path, session_id: str) -> None:
        self.path = path
        self.run_id = path.name
        self.session_id = session_id
        self.faults: list[str] = []
        self.events = list(_lines(path / "operations.jsonl", self.faults))
        self.status = "queued"
        self.generation = 0
        self.started = False
        self.ending: str | None = None
        self.finished: Doc | None = None
        self.accepted: Doc = {}
        self.delivered: list[int] = []
        self.used_up: list[int] = []
        self.questions: list[str] = []
        self.waiting_for: str | None = None
        self.operations: dict[str, Operation] = {}
        # What `run.json` has to say after each event.
        self.after: dict[int, Doc] = {}
        for number, event in enumerate(self.events, start=1):
            self._fold(number, event)

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL

    @property
    def unresolved(self) -> list[str]:
        return sorted(name for name, operation in self.operations.items() if operation.is_unresolved)

    def fault(self, words: str) -> None:
        self.faults.append(f"{self.session_id}/{self.run_id}: {words}")

    def _fold(self, number: int, event: Doc) -> None:
        kind, payload = event["type"], event["payload"]
        if event["seq"] != number:
            self.fault(f"event {number} has the number {event['seq']}")
        if (event["sessionId"], event["runId"]) != (self.session_id, self.run_id):
            self.fault(f"event {number} belongs to {event['sessionId']}/{event['runId']}")
        if (number == 1) != (kind == "run.accepted"):
            self.fault(f"event {number} is {kind}")
        if self.is_over and kind not in AFTER_THE_END:
            self.fault(f"event {number} ({kind}) stands behind the end")
        self._generation(number, event)
        self._move(number, kind, payload)
        if kind == "run.accepted":
            self.accepted = payload
        elif kind == "input.delivered":
            self.delivered += payload["messageSeqs"]
            if self.status != "running":
                self.fault(f"event {number}: an input was delivered while it was {self.status}")
        elif kind == "run.input_received" and "approved" in payload:
            self.used_up.append(payload["messageSeq"])
        if isinstance(payload.get("operationId"), str) and kind != "run.waiting_input":
            self._operation(number, kind, payload)
        self.after[event["seq"]] = {
            "status": self.status,
            "generation": self.generation,
            "ending": self.ending,
            "terminalStatus": self.status if self.is_over else None,
            "report": self.finished["report"] if self.finished else None,
            "returnedInputs": self.finished["returnedInputs"] if self.finished else [],
            "unresolvedOperations": self.unresolved,
            "waitingFor": self.waiting_for,
            "messageSeq": self.accepted.get("messageSeq"),
        }

    def _generation(self, number: int, event: Doc) -> None:
        if event["type"] == "run.lease_acquired":
            if event["generation"] != self.generation + 1:
                self.fault(f"event {number} takes generation {event['generation']} after {self.generation}")
            self.generation = event["generation"]
        elif event["generation"] != self.generation:
            self.fault(f"event {number} is of generation {event['generation']}, not {self.generation}")

    def _move(self, number: int, kind: str, payload: Doc) -> None:
        if kind in ("run.cancel_requested", "run.failing") and self.ending is None:
            intent = payload.get("intent", "cancel") if kind == "run.cancel_requested" else "failure"
            self.ending = ENDING.get(intent, "cancelled")
        if kind == "run.waiting_input":
            self.questions.append(payload["questionId"])
            self.waiting_for = payload["questionId"]
        elif kind in ("run.input_received", "run.cancel_requested", "run.failing", "run.finished"):
            self.waiting_for = None
        self.started = self.started or kind == "run.started"
        target = MOVES.get(self.status, {}).get(kind)
        if kind == "run.finished":
            self._finish(number, payload)
        elif target:
            self.status = target
        elif kind in ("run.waiting_input", "run.input_received", "run.compacting", "run.compacted"):
            self.fault(f"event {number}: {kind} while it was {self.status}")

    def _finish(self, number: int, payload: Doc) -> None:
        end = payload["terminalStatus"]
        if self.finished is not None:
            self.fault(f"event {number}: it ends a second time, as {end}")
            return
        if end not in ENDS.get(self.status, ()):
            self.fault(f"event {number}: it ends as {end} while it was {self.status}")
        if self.ending is not None and end != self.ending:
            self.fault(f"it was to end as {self.ending} and ended as {end}")
        still_open = [name for name, operation in self.operations.items() if operation.is_open]
        if still_open:
            self.fault(f"it ended with open operations: {', '.join(still_open)}")
        if sorted(payload["unresolvedOperations"]) != self.unresolved:
            self.fault(f"its end lists {payload['unresolvedOperations']} as unresolved, not {self.unresolved}")
        self.finished, self.status = payload, end

    def _operation(self, number: int, kind: str, payload: Doc) -> None:
        name = payload["operationId"]
        known = self.operations.get(name)
        if kind in ("model.request.started", "tool.registered") and known is None:
            pending = kind == "tool.registered"
            label = payload["toolName" if pending else "model"]
            status = "pending" if pending else "running"
            self.operations[name] = Operation(label, payload.get("effect"), status)
            return
        if known is None:
            self.fault(f"event {number}: {kind} of {name}, which nothing registered")
            return
        if kind in ("tool.started", "model.request.started"):
            if known.status != "pending":
                self.fault(f"event {number}: {name} is started while it is {known.status}")
            known = known._replace(status="running", dispatched=known.dispatched + 1)
        elif kind in ("tool.finished", "model.request.finished"):
            if not known.is_open:
                self.fault(f"event {number}: {name} gets a second outcome")
            status = "pending" if payload.get("willRetry") else payload["status"]
            unsure = payload.get("mayHaveEffects") is True
            known = known._replace(status=status, may_have_effects=unsure)
        elif kind in ("operation.reconciled", "operation.late_result"):
            certain = payload["status"] != "unknown"
            unsure = payload.get("mayHaveEffects") is True if known.is_open else known.may_have_effects
            known = known._replace(status=payload["status"], settled=certain, may_have_effects=unsure)
        self.operations[name] = known


def problems(root: Path, ledger: Ledger | None = None, *, settled: bool) -> list[str]:
    """Everything in the tree that breaks a promise.

    `settled`: a writer has come by since whatever was interrupted, so that what follows from the commits is complete.
    """
    found: list[str] = []
    runs: dict[tuple[str, str], Run] = {}
    messages: dict[tuple[str, int], Doc] = {}
    sessions = sorted(path for path in root.glob("accounts/*/sessions/*") if not path.name.startswith("."))
    for path in sessions:
        session = _Session(path, settled)
        found += session.problems()
        runs |= {(path.name, run.run_id): run for run in session.runs}
        messages |= {(path.name, message["seq"]): message for message in session.messages}
    found += _modes(root)
    if ledger is not None:
        found += _lost(ledger, {path.name for path in sessions}, runs, messages)
    return found


def runs_of(root: Path, session_id: str) -> list[Run]:
    """The runs of a session, oldest first."""
    (path,) = root.glob(f"accounts/*/sessions/{session_id}")
    return _Session(path, settled=False).runs


def messages_of(root: Path, session_id: str) -> list[Doc]:
    """The messages of a session, oldest first."""
    (path,) = root.glob(f"accounts/*/sessions/{session_id}")
    return _Session(path, settled=False).messages


class _Session:
    def __init__(self, path: Path, settled: bool) -> None:
        self.path = path
        self.name = path.name
        self.settled = settled
        self.found: list[str] = []
        self.messages = list(_lines(path / "messages.jsonl", self.found))
        # What a fork began with belongs to runs of another session.
        forked_from = _document(path / "session.json", []).get("forkedFrom") or {"seq": 0}
        self.own = self.messages[forked_from["seq"] :]
        numbered = sorted(
            (int(each.name.removeprefix("run-")), each) for each in (path / "runs").iterdir() if each.is_dir()
        )
        self.numbers = [number for number, _ in numbered]
        self.runs = [Run(each, self.name) for _, each in numbered]

    def fault(self, words: str) -> None:
        self.found.append(f"{self.name}: {words}")

    def problems(self) -> list[str]:
        document = _document(self.path / "session.json", self.found)
        if document.get("sessionId") != self.name:
            self.fault(f"session.json is about {document.get('sessionId')}")
        self._messages()
        self._runs()
        self._slot()
        for run in self.runs:
            if not run.events and not self.settled:
                continue  # accepted by its message; its first event is to come
            self._inputs(run)
            self._questions(run)
            self._end(run)
            self._snapshot(run)
            self.found += run.faults
        return self.found

    def _messages(self) -> None:
        keys: dict[str, int] = {}
        for number, message in enumerate(self.messages, start=1):
            if message["seq"] != number:
                self.fault(f"message {number} has the number {message['seq']}")
            if message["sessionId"] != self.name:
                self.fault(f"message {number} belongs to {message['sessionId']}")
            key = message.get("key")
            if key is not None and keys.setdefault(key, number) != number:
                self.fault(f"the key {key} was accepted as message {keys[key]} and again as {number}")

    def _runs(self) -> None:
        prompts = [m["runId"] for m in self.own if m["mode"] in ("prompt", "compact")]
        expected = [f"run-{number}" for number in range(1, len(prompts) + 1)]
        if prompts != expected:
            self.fault(f"its prompts name {prompts}")
        present = [run.run_id for run in self.runs]
        # The last prompts may lack their runs until the next writer comes by; never the other way round.
        if present != expected[: len(present)] or (self.settled and present != expected):
            self.fault(f"its prompts name {expected}, its runs are {present}")

    def _slot(self) -> None:
        path = self.path / "active"
        holder = path.read_text(encoding="ascii").rstrip("\n") if path.exists() else None
        begun = [run.run_id for run in self.runs if run.started and not run.is_over]
        still_open = [
            run_id for run_id in self._queue() if any(run.run_id == run_id and run.events for run in self.runs)
        ]
        if len(begun) > 1:
            self.fault(f"these runs are active at once: {begun}")
        if holder is not None and holder not in [run.run_id for run in self.runs]:
            self.fault(f"active names {holder}, which is no run of it")
        if begun and holder not in (begun[0], None):
            self.fault(f"{begun[0]} is under way and active names {holder}")
        if begun and holder is None:
            self.fault(f"{begun[0]} is under way without the slot")
        if self.settled:
            expected = begun[0] if begun else still_open[0] if still_open else None
            if holder != expected:
                self.fault(f"active names {holder}, not {expected}")

    def _queue(self) -> list[str]:
        """The open runs in the order in which they get the slot, as the newest prompt tells it."""
        prompts = [m for m in self.own if m["role"] == "user" and m["mode"] == "prompt"]
        if not prompts:
            return []
        accept, newest = prompts[-1]["accept"], prompts[-1]["runId"]
        behind = accept["behind"]
        order = [*behind[:1], newest, *behind[1:]] if accept["atHead"] else [*behind, newest]
        over = {run.run_id for run in self.runs if run.is_over}
        return [run_id for run_id in order if run_id not in over]

    def _inputs(self, run: Run) -> None:
        mine = [m["seq"] for m in self.own if m["runId"] == run.run_id and m["role"] == "user"]
        reached = run.delivered + run.used_up
        returned = run.finished["returnedInputs"] if run.finished else []
        for seq in sorted(set(reached)):
            if reached.count(seq) > 1:
                run.fault(f"message {seq} was delivered {reached.count(seq)} times")
            if seq not in mine:
                run.fault(f"message {seq} was delivered to it and is none of its inputs")
        begun = mine + [m["seq"] for m in self.own if m["runId"] == run.run_id and m["mode"] == "compact"]
        if run.accepted and run.accepted["messageSeq"] not in begun:
            run.fault(f"its prompt, message {run.accepted['messageSeq']}, is not there")
        if not run.is_over:
            return
        if set(returned) & set(reached):
            run.fault(f"messages {sorted(set(returned) & set(reached))} were delivered, and returned as well")
        missing = sorted(set(mine) - set(reached) - set(returned))
        if missing:
            run.fault(f"messages {missing} were neither delivered nor returned")
        if run.status == "completed" and returned:
            run.fault(f"it completed without its inputs {returned}")

    def _questions(self, run: Run) -> None:
        asked = [m["questionId"] for m in self.own if m["runId"] == run.run_id and m["mode"] == "question"]
        for question in run.questions:
            least = 1 if self.settled and question == run.waiting_for else 0
            if not least <= asked.count(question) <= 1:
                run.fault(f"{question} stands {asked.count(question)} times in the conversation")
        if set(asked) - set(run.questions):
            run.fault(f"the conversation asks {sorted(set(asked) - set(run.questions))}, which the run did not")

    def _end(self, run: Run) -> None:
        closing = [m for m in self.own if m["runId"] == run.run_id and m["mode"] in ("report", "ended")]
        delivered = run.path / "report.md"
        if not run.is_over:
            if closing:
                run.fault(f"message {closing[0]['seq']} tells its end, and it is {run.status}")
            if delivered.exists():
                run.fault(f"it has a report and is {run.status}")
            return
        if not (1 if self.settled else 0) <= len(closing) <= 1:
            run.fault(f"its end is told {len(closing)} times")
        if run.status != "completed":
            if delivered.exists():
                run.fault(f"it has a report and is {run.status}")
            for message in closing:
                untold = [name for name in run.unresolved if name not in message["text"]]
                if message["mode"] != "ended" or (untold and run.status == "cancelled"):
                    run.fault(f"message {message['seq']} does not say how it ended (unresolved: {untold})")
            return
        if run.accepted and run.accepted["inputMode"] == "compact" and run.finished and not run.finished["report"]:
            # It has summarised, which is all that it was begun for.
            if delivered.exists() or any(message["mode"] != "ended" for message in closing):
                run.fault("it had nothing to report, and has a report")
            return
        self._report(run, delivered, closing)

    def _report(self, run: Run, delivered: Path, closing: list[Doc]) -> None:
        assert run.finished is not None
        committed = run.finished["report"] or {}
        blob = run.path / "blobs" / str(committed.get("sha256"))
        data = blob.read_bytes() if blob.exists() else None
        if data is None or hashlib.sha256(data).hexdigest() != committed.get("sha256"):
            run.fault("the bytes of its report are not in blobs/ under their hash")
            return
        if len(data) != committed["bytes"]:
            run.fault(f"its report has {len(data)} bytes, {committed['bytes']} were committed")
        if delivered.exists():
            if delivered.read_bytes() != data:
                run.fault("report.md is not what was committed")
        elif self.settled:
            run.fault("it completed and has no report.md")
        for message in closing:
            if message["mode"] != "report" or message["text"].encode() != data:
                run.fault(f"message {message['seq']} is not its report")

    def _snapshot(self, run: Run) -> None:
        path = run.path / "run.json"
        if not path.exists():
            if self.settled and run.is_over:
                run.fault("it is over and has no run.json")
            return
        # A snapshot is not waited for, so a power cut can leave half of one; the events tell the same.
        said = _document(path, self.found if self.settled else [])
        if not said:
            return
        expected = run.after.get(said.get("appliedSeq", 0))
        if expected is None:
            run.fault(f"run.json contains event {said.get('appliedSeq')}, the last one is {len(run.events)}")
            return
        listed = sorted(each["operationId"] for each in said["unresolvedOperations"])
        waiting = (said["waitingFor"] or {}).get("questionId")
        told = said | {"unresolvedOperations": listed, "waitingFor": waiting}
        for field, value in expected.items():
            if told.get(field) != value:
                run.fault(f"run.json says {field} {told.get(field)!r}, its events say {value!r}")
        if self.settled and run.is_over and not said["terminalStatus"]:
            run.fault("it is over, and run.json does not say so")


def _lost(
    ledger: Ledger, sessions: set[str], runs: dict[tuple[str, str], Run], messages: dict[tuple[str, int], Doc]
) -> Iterator[str]:
    for session_id in ledger.sessions - sessions:
        yield f"{session_id} was acknowledged and is not there"
    for (session_id, seq), accepted in ledger.messages.items():
        message = messages.get((session_id, seq))
        if message is None:
            yield f"{session_id}: message {seq} was acknowledged and is not there"
            continue
        for field, value in accepted.items():
            if value is not None and message[field] != value:
                yield f"{session_id}: message {seq} was acknowledged with {field} {value!r}, it has {message[field]!r}"
    for (session_id, run_id, seq), event in ledger.events.items():
        run = runs.get((session_id, run_id))
        if run is None or len(run.events) < seq or run.events[seq - 1] != event:
            yield f"{session_id}/{run_id}: event {seq} ({event['type']}) was told and is not there"
    for (session_id, run_id), end in ledger.ends.items():
        run = runs.get((session_id, run_id))
        if run is None or run.status != end:
            yield f"{session_id}/{run_id}: {end} was told, and it is {run.status if run else 'not there'}"


def _modes(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root, onerror=_unless_gone):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            mode = stat.S_IMODE(status.st_mode)
            if mode != (0o700 if stat.S_ISDIR(status.st_mode) else 0o600):
                yield f"{path} has mode {mode:o}"


def _unless_gone(error: OSError) -> None:
    # A command that goes on meanwhile moves what it has staged to its place, and removes what it has done with.
    if not isinstance(error, FileNotFoundError):
        raise error


def _lines(path: Path, found: list[str]) -> Iterator[Doc]:
    """The records of a log. What stands behind the last newline was acknowledged to nobody."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield json.loads(line)
        except ValueError:
            found.append(f"{path}: line {number} is no record")


def _document(path: Path, found: list[str]) -> Doc:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        found.append(f"{path}: {error}")
        return {}
    return document if isinstance(document, dict) else {}
