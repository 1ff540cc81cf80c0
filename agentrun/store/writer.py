"""The right to write into a session: whoever has a `Writer` holds the session's lock.

`store.redo` gives writers out. A function that needs the lock takes one as an argument, so that it cannot be called
without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentrun import clock
from agentrun.records.message import ENDED, PROMPT, REPORT, Message
from agentrun.records.run import Run
from agentrun.store import layout
from agentrun.store.locks import Held
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


class Writer(Held):
    """A session whose lock is held by this thread."""

    def __init__(self, session: SessionDir) -> None:
        self.session = session

    def append_message(self, run_id: str, role: str, mode: str, text: str, **fields: Any) -> Message:
        """Appends a message to the conversation, durable when this returns: for an input that is its acceptance."""
        log = self.session.messages
        message = Message(0, self.session.session_id, run_id, role, mode, text, clock.timestamp(), **fields)
        doc = log.append(lambda seq: message._replace(seq=seq).to_doc())
        log.sync()
        self.session.activity.note(self.session.session_id)
        return message._replace(seq=doc["seq"])

    def open_runs(self) -> list[RunDir]:
        """The runs that are not over: first the one that was started, then the queue in its order."""
        runs = [(run_dir, run_dir.current(self)) for run_dir in self.newest_known_runs()]
        still_open = [(run_dir, run) for run_dir, run in runs if not run.is_over]
        return [run_dir for run_dir, run in sorted(still_open, key=lambda each: each[1].started_at is None)]

    def newest_known_runs(self) -> Iterator[RunDir]:
        """The newest run, and those that were open when it was accepted: no other can be open. In queue order."""
        prompt = self.session.newest_prompt()
        if prompt is None:
            return
        for run_id in self.queue_of(prompt):
            if self.session.has_run(run_id):
                yield self.session.run(run_id)

    @staticmethod
    def queue_of(prompt: Message) -> list[str]:
        """The runs that were open once `prompt` was accepted, in the order in which they get the slot."""
        accept = prompt.accept or {}
        behind = [run_id for run_id in accept.get("behind") or () if isinstance(run_id, str)]
        # At the head means behind the run that holds the slot and before those that wait for it.
        return [*behind[:1], prompt.run_id, *behind[1:]] if accept.get("atHead") else [*behind, prompt.run_id]

    def undelivered(self, run: Run) -> list[Message]:
        """The inputs of `run` that have reached nobody yet, oldest first."""
        delivered = set(run.delivered_inputs)
        found = [
            message
            for message in self.session.messages_of(run.run_id, run.message_seq)
            if message.is_input and message.seq not in delivered
        ]
        return found[::-1]

    def closing_message(self, run: Run) -> Message | None:
        """The message that tells how `run` ended, if it is there."""
        messages = self.session.messages_of(run.run_id, run.message_seq)
        return next((message for message in messages if message.mode in (REPORT, ENDED)), None)

    def prompt_of(self, run_id: str) -> Message | None:
        """The prompt that began `run_id`."""
        messages = self.session.messages_of(run_id, 0)
        return next((message for message in messages if message.is_input and message.mode == PROMPT), None)

    def take_slot(self, run_id: str) -> bool:
        """Links `active` to `run_id`, durable; False if another run holds the slot."""
        directory = self.session.directory
        taken = directory.link_exclusively(layout.ACTIVE, f"{run_id}\n".encode("ascii"))
        directory.sync()
        return taken

    def free_slot(self) -> None:
        """Removes `active`, durable."""
        self.session.directory.remove(layout.ACTIVE)
        self.session.directory.sync()
