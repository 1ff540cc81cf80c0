"""Summarising the history of a session while a run holds it: what may be covered, and how the summary gets in place."""

from __future__ import annotations

from agentrun import clock
from agentrun.agent.protocols import Conversation
from agentrun.errors import NewerFormat
from agentrun.executor.conversation import earlier_conversation, messages_before
from agentrun.executor.hold import Hold
from agentrun.records.codec import Doc
from agentrun.records.message import Message
from agentrun.records.summary import Summary
from agentrun.states import EventType, RunStatus
from agentrun.store.closing import finish
from agentrun.store.summaries import first_undelivered, write_summary
from agentrun.store.writer import Writer

E = EventType


class Compacting(Hold):
    """What `agent.protocols.Stretch` offers for summaries; see there."""

    conversation: Conversation

    def uncovered(self, characters: int) -> list[Message]:
        """The oldest messages from before this run that no summary covers, at least one if there is any."""
        run = self.run_dir.seen
        with self._recording() as writer:
            waiting = first_undelivered(writer)
        end = run.message_seq if waiting is None else min(run.message_seq, waiting)
        taken: list[Message] = []
        for message in messages_before(self.session, self.conversation.covered_seq, end):
            characters -= len(message.text)
            if taken and characters < 0:
                break
            taken.append(message)
        return taken

    async def begin_compaction(self, covers: Doc) -> None:
        """Says that history is being summarised."""
        with self._writing() as writer:
            if self._going_on(writer) is not None:
                self.run_dir.append(self.lease, writer, E.RUN_COMPACTING, {"covers": covers})
                self.run_dir.write_snapshot(writer)
                return
        await self._stop_here()

    async def end_compaction(self, operation_id: str, covers: Doc, text: str | None, error: str | None) -> None:
        """Puts the summary in place, and says so. A run that must not go on leaves the old one."""
        with self._writing() as writer:
            if self._going_on(writer) is not None:
                if text is not None:
                    covers = self._within_what_was_delivered(writer, covers)
                    error = self._put_in_place(writer, self._summary(text, covers, operation_id))
                elif error is None:
                    error = "there is no summary"
                payload: Doc = {"operationId": operation_id, "covers": covers if error is None else None}
                payload |= {"error": error} if error is not None else {}
                self.run_dir.append(self.lease, writer, E.RUN_COMPACTED, payload)
                self.run_dir.write_snapshot(writer)
                self.conversation = earlier_conversation(self.session, self.run_dir.seen)
                return
        await self._stop_here()

    async def complete_without_report(self, reason: str) -> bool:
        """Ends a run that was begun to summarise."""
        with self._writing() as writer:
            run = self._going_on(writer)
            if run is not None:
                if writer.undelivered(run) or run.open_operations:
                    return False
                spent = self._watch.take()
                finish(writer, self.lease, self.run_dir, RunStatus.COMPLETED, reason=reason, executing_ms=spent)
                return True
        return await self._stop_here()

    def _put_in_place(self, writer: Writer, summary: Summary) -> str | None:
        """Replaces the summary; returns why not, if a newer version has made the one that is there."""
        try:
            write_summary(writer, self.lease, self.run_dir, summary)
        except NewerFormat as refused:
            return refused.message
        return None

    def _within_what_was_delivered(self, writer: Writer, covers: Doc) -> Doc:
        """No summary stands for an input that reached nobody, whatever came since the pass was planned."""
        waiting = first_undelivered(writer)
        return covers if waiting is None else covers | {"messageSeq": min(covers["messageSeq"], waiting - 1)}

    def _summary(self, text: str, covers: Doc, operation_id: str) -> Summary:
        return Summary(
            session_id=self.session.session_id,
            text=text,
            message_seq=covers["messageSeq"],
            run_id=covers["runId"],
            event_seq=covers["eventSeq"],
            by_run=self.run_dir.run_id,
            by_operation=operation_id,
            at=clock.timestamp(),
        )
