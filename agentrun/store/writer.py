"""The right to write into a session: whoever has a `Writer` holds the session's lock.

`store.redo` gives writers out. A function that needs the lock takes one as an argument, so that it cannot be called
without.
"""

from __future__ import annotations

from agentrun import clock
from agentrun.records.message import ENDED, REPORT, Message
from agentrun.records.numbered import Numbers
from agentrun.records.run import Run
from agentrun.store import layout
from agentrun.store.locks import Held
from agentrun.store.numbers import newest_message_of
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Writer(Held):
    """A session whose lock is held by this thread."""

    # Looked up once: as long as the lock is held, nobody else appends.
    _newest_prompt: Message | None = None
    # The handle of an executor, which knows what its run has come to.
    at_hand: RunDir | None = None
    # How many runs were asked for the messages that they tell of.
    _heeded = 0

    def __init__(self, session: SessionDir) -> None:
        self.session = session

    def append_message(self, run_id: str, role: str, mode: str, text: str, **fields: Any) -> Message:
        """Appends a message to the conversation, durable when this returns: for an input that is its acceptance."""
        log = self.session.messages
        # The hint first: if it cannot be written, nothing has been accepted.
        self.session.activity.note(self.session.session_id)
        message = Message(0, self.session.session_id, run_id, role, mode, text, clock.timestamp(), **fields)
        doc = log.append(lambda seq: message._replace(seq=seq).to_doc())
        log.sync()
        self._newest_prompt = None
        return message._replace(seq=doc["seq"])

    def heed_numbers(self, run: Run) -> None:
        """Sees to it that no number of a message that `run` tells of is given out again, even if the line is lost."""
        self._heeded += 1
        # Of the messages behind it, no run tells of those about its end, and of a question that waits.
        self.session.messages.go_on_above(newest_message_of(run), self._heeded + 1)

    def newest_prompt(self) -> Message | None:
        """The last prompt of this session."""
        self._newest_prompt = self._newest_prompt or self.session.newest_prompt()
        return self._newest_prompt

    def open_runs(self) -> list[RunDir]:
        """The runs that are not over: first the one that was started, then the queue in its order."""
        runs = [(run_dir, run_dir.current(self)) for run_dir in self.newest_known_runs()]
        still_open = [(run_dir, run) for run_dir, run in runs if not run.is_over]
        return [run_dir for run_dir, run in sorted(still_open, key=lambda each: each[1].started_at is None)]

    def newest_known_runs(self) -> Iterator[RunDir]:
        """The newest run, and those that were open when it was accepted: no other can be open. In queue order."""
        prompt, active = self.newest_prompt(), self.session.active()
        known = prompt.queue if prompt else []
        # The line of its prompt may be damaged; the slot tells of it all the same.
        if active is not None and active not in known:
            known = [active, *known]
        for run_id in known:
            if self.session.has_run(run_id):
                at_hand = self.at_hand
                yield at_hand if at_hand is not None and at_hand.run_id == run_id else self.session.run(run_id)

    @staticmethod
    def interrupted_by(prompt: Message) -> str | None:
        """The run that is stopped for `prompt`: it held the slot when the prompt was put at the head of the queue."""
        accept = prompt.accept or {}
        behind = accept.get("behind") or ()
        return behind[0] if accept.get("atHead") and behind and isinstance(behind[0], str) else None

    def undelivered(self, run: Run) -> list[Message]:
        """The inputs of `run` that have reached nobody yet, oldest first."""
        return list(self.undelivered_backward(run))[::-1]

    def undelivered_backward(self, run: Run) -> Iterator[Message]:
        """The same one by one, newest first: a run that is stopped may have any number of them."""
        delivered = Numbers(run.delivered_inputs)
        for message in self.session.messages_of(run.run_id, run.message_seq):
            if message.is_input and message.seq not in delivered:
                yield message

    def closing_message(self, run: Run) -> Message | None:
        """The message that tells how `run` ended, if it is there."""
        messages = self.session.messages_with((REPORT, ENDED), run.message_seq)
        return next((message for message in messages if message.run_id == run.run_id), None)

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
