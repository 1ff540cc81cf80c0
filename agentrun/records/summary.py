"""`summary.json`: what is known of a session's earlier history, and exactly which part of it that is."""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import FORMAT_VERSION, Doc, without

_FIELDS = frozenset(("formatVersion", "sessionId", "text", "covers", "by", "at"))


class Summary(NamedTuple):
    """A summary. It stands for the messages up to `message_seq`, and for the replies and tool results of `run_id` up to
    its event `event_seq`, if it covers any. `by_run` and `by_operation` name the model request that made it. `extra`
    keeps fields of other versions.
    """

    session_id: str
    text: str
    message_seq: int
    run_id: str | None
    event_seq: int | None
    by_run: str
    by_operation: str
    at: str
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    def to_doc(self) -> Doc:
        """The document's fields in the order they are stored."""
        return {
            "formatVersion": FORMAT_VERSION,
            "sessionId": self.session_id,
            "text": self.text,
            "covers": {"messageSeq": self.message_seq, "runId": self.run_id, "eventSeq": self.event_seq},
            "by": {"runId": self.by_run, "operationId": self.by_operation},
            "at": self.at,
        } | self.extra

    @classmethod
    def from_doc(cls, doc: Doc) -> Summary:
        """The summary in a decoded document. Raises ValueError if it is none."""
        covers, by = doc.get("covers"), doc.get("by")
        if not isinstance(covers, dict) or not isinstance(doc.get("text"), str):
            raise ValueError("no summary: text or covers is missing")
        message_seq, run_id, event_seq = covers.get("messageSeq"), covers.get("runId"), covers.get("eventSeq")
        if type(message_seq) is not int or (run_id is not None and type(event_seq) is not int):
            raise ValueError("no summary: it does not say what it covers")
        by = by if isinstance(by, dict) else {}
        return cls(
            session_id=str(doc.get("sessionId")),
            text=doc["text"],
            message_seq=message_seq,
            run_id=run_id if isinstance(run_id, str) else None,
            event_seq=event_seq if type(event_seq) is int else None,
            by_run=str(by.get("runId")),
            by_operation=str(by.get("operationId")),
            at=str(doc.get("at") or ""),
            extra=without(doc, _FIELDS),
        )
