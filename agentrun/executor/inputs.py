"""The input that waits for a run, and its delivery together with a model request."""

from __future__ import annotations

from itertools import groupby

from agentrun.executor.attachments import with_files
from agentrun.records.codec import Doc
from agentrun.records.message import FOLLOW_UP, STEER, Message
from agentrun.records.run import Run
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.writer import Writer


class Inputs:
    """The user's messages to the run that this process drives."""

    def __init__(self, session: SessionDir, run_dir: RunDir) -> None:
        self._session = session
        self._run_dir = run_dir
        self._known: dict[int, Message] = {}
        # The length of the conversation when it was last found to hold no undelivered input.
        self._nothing_waits_at = -1

    def message(self, message_seq: int) -> Message:
        """The message of an `input.delivered` event, with the files that go with it.

        One whose line was damaged since stands for itself in words: what the run has done is still there, and no
        request is refused for it.
        """
        if message_seq not in self._known:
            message = self._session.message_at(message_seq) or self._unreadable(message_seq)
            self._known[message_seq] = with_files(self._session, self._run_dir, message)
        return self._known[message_seq]

    def _unreadable(self, message_seq: int) -> Message:
        said = f"What the user said here (message {message_seq}) cannot be read any more: its record is damaged"
        text = f"[Note of the program] {said}. Say so instead of guessing what it said."
        return Message(message_seq, self._session.session_id, self._run_dir.run_id, "user", None, text, "")

    def is_steered(self, writer: Writer, run: Run) -> bool:
        """Whether a steer waits to be delivered."""
        return any(message.mode == STEER for message in self._waiting(writer, run))

    def due(self, writer: Writer, run: Run, turn_id: str, *, at_rest: bool) -> list[Doc]:
        """The payloads of the `input.delivered` events that belong before the request of `turn_id`.

        The messages are synced: whoever accepted them may have died before its sync, and the delivery must not outlive
        them.
        """
        inputs = [each for each in self._waiting(writer, run) if at_rest or each.mode != FOLLOW_UP]
        if inputs:
            self._session.messages.sync()
        payloads: list[Doc] = []
        for mode, group in groupby(inputs, key=lambda message: message.mode):
            messages = list(group)
            self._known |= {each.seq: with_files(self._session, self._run_dir, each) for each in messages}
            payloads.append({"messageSeqs": [message.seq for message in messages], "mode": mode, "turnId": turn_id})
        return payloads

    def _waiting(self, writer: Writer, run: Run) -> list[Message]:
        """What was said and not delivered. As long as nothing is said, looking costs one system call."""
        size = self._session.messages.size()
        if size == self._nothing_waits_at:
            return []
        waiting = writer.undelivered(run)
        if not waiting:
            self._nothing_waits_at = size
        return waiting
