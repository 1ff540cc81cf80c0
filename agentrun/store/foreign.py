"""Puts a session together of what another program has recorded: messages, and runs that are over.

No lease was ever held on such a run, so its events have generation 0, and its times are those of the record. Everything
else is as if it had happened here: whoever reads, checks, forks or goes on with the session needs to know nothing.
"""

from __future__ import annotations

import io

from agentrun.ids import run_id
from agentrun.records.acceptance import first_event
from agentrun.records.codec import Doc, encode_document
from agentrun.records.ending import how_it_ended
from agentrun.records.event import Event
from agentrun.records.message import ENDED, PROMPT, REPORT, Message
from agentrun.records.run import Run, accepted_run
from agentrun.records.session import Session
from agentrun.states import EventType, RunStatus
from agentrun.store import layout
from agentrun.store.blobs import keep_blob
from agentrun.store.disk import Directory
from agentrun.store.log import Log
from agentrun.store.staging import Staging

E = EventType


class ForeignSession:
    """A session in the making. `document` is written by `finish`, when everything about it is known."""

    def __init__(self, staging: Staging, document: Session) -> None:
        self.document = document
        self.runs = 0
        staging.check_free(document.session_id)
        self._directory = staging.directory.ensure(document.session_id)
        for name in (layout.RUNS, layout.KEYS):
            self._directory.make(name)
        self._directory.create(layout.MESSAGES, ())
        self._messages = Log(self._directory, layout.MESSAGES, must_exist=True)

    def begin_run(self, text: str, at: str, extra: Doc) -> ForeignRun:
        """The next run, and the prompt that began it."""
        self.runs += 1
        name = run_id(self.runs)
        accept: Doc = {
            "agent": None, "references": [], "attachments": [], "timeout": None, "config": None, "parentRun": None,
            "continues": None, "atHead": False, "behind": [],
        }  # fmt: skip
        prompt = self.say(name, "user", PROMPT, text, at, accept=accept, extra=extra)
        runs = self._directory.open(layout.RUNS)
        return ForeignRun(self, prompt, runs.ensure(name))

    def say(
        self, run: str, role: str, mode: str, text: str, at: str, accept: Doc | None = None, extra: Doc | None = None
    ) -> Message:
        """Appends a message."""
        message = Message(0, self.document.session_id, run, role, mode, text, at, accept=accept, extra=extra or {})
        doc = self._messages.append(lambda seq: message._replace(seq=seq).to_doc())
        return message._replace(seq=doc["seq"])

    def finish(self, document: Session) -> int:
        """Writes the document, all durable; returns the number of messages."""
        self.document = document
        self._messages.sync()
        count = self._messages.last_seq()
        self._messages.close()
        self._directory.replace(layout.SESSION, encode_document(document.to_doc()))
        return count


class ForeignRun:
    """A run in the making: events are appended as they were, and `finish` ends it."""

    def __init__(self, session: ForeignSession, prompt: Message, directory: Directory) -> None:
        self.run_id = prompt.run_id
        self.inputs: list[int] = [prompt.seq]
        self._session = session
        self._directory = directory
        self._events = Log(directory, layout.OPERATIONS)
        first = first_event(session.document.account_id, prompt)
        self._events.append(lambda seq: first._replace(seq=seq).to_doc())
        self._run: Run = accepted_run(first)
        about = {"inputMode": PROMPT, "accountId": session.document.account_id, "timeoutAt": None}
        self.append(E.RUN_STARTED, prompt.at, about)

    def append(self, kind: EventType, at: str, payload: Doc) -> None:
        """Appends an event. Raises TransitionRefused if it cannot stand here."""
        event = Event(
            self._session.document.session_id, self.run_id, self._run.applied_seq + 1, kind.value, at, 0, payload
        )
        self._run = self._run.apply(event)
        self._events.append(lambda seq: event._replace(seq=seq).to_doc())

    def add_input(self, mode: str, text: str, at: str, extra: Doc) -> None:
        """Something else that the user said while the run went on."""
        self.inputs.append(self._session.say(self.run_id, "user", mode, text, at, extra=extra).seq)

    def keep(self, text: str) -> Doc:
        """Keeps a long text as a blob."""
        return keep_blob(self._directory, layout.BLOBS, io.BytesIO(text.encode("utf-8", "replace")))

    def finish(self, end: RunStatus, at: str, reason: str | None, report: str | None) -> None:
        """Ends the run, durable."""
        if end is RunStatus.CANCELLED:
            self.append(
                E.RUN_CANCEL_REQUESTED, at, {"actor": None, "reason": reason, "intent": "cancel", "via": "import"}
            )
        elif end is RunStatus.FAILED:
            self.append(E.RUN_FAILING, at, {"reason": reason})
        kept = self.keep(report) if report is not None else None
        delivered = set(self._run.delivered_inputs)
        payload: Doc = {
            "terminalStatus": end.value,
            "reason": reason,
            "report": kept,
            "unresolvedOperations": [],
            "returnedInputs": [seq for seq in self.inputs if seq not in delivered],
            "usage": self._run.usage,
            "executingMs": 0,
        }
        self.append(E.RUN_FINISHED, at, payload)
        self._events.sync()
        self._events.close()
        if report is not None:
            self._directory.replace(layout.REPORT, report.encode("utf-8", "replace"))
            self._session.say(self.run_id, "assistant", REPORT, report, at)
        else:
            self._session.say(self.run_id, "system", ENDED, how_it_ended(self._run), at)
        self._directory.replace(layout.RUN, encode_document(self._run.to_doc()))
