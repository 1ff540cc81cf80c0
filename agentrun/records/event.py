"""One line of a run's `operations.jsonl`: the record that its status is folded from."""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, encode_line, without
from agentrun.records.fields import PAYLOAD, check_fields, is_count
from agentrun.records.jsontext import line_of
from agentrun.states import EventType

# In the order in which they are stored.
_FIELDS = ["sessionId", "runId", "seq", "type", "at", "generation", "payload"]
_KNOWN_FIELDS = frozenset(_FIELDS)

_KNOWN = frozenset(kind.value for kind in EventType)


class Event(NamedTuple):
    """An event; `seq` is dense per run from 1, `generation` is that of the lease it was written under."""

    session_id: str
    run_id: str
    seq: int
    type: str
    at: str
    generation: int
    payload: Doc
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    def to_doc(self) -> Doc:
        """The line's fields in the order they are stored."""
        return {
            "sessionId": self.session_id,
            "runId": self.run_id,
            "seq": self.seq,
            "type": self.type,
            "at": self.at,
            "generation": self.generation,
            "payload": self.payload,
            **self.extra,
        }

    def to_line(self, beginning: str) -> bytes:
        """The line of a new event, as `encode_line` makes it of all fields; `beginning` begins each line of its run.

        An executor passes here for every event, and most of a line is always the same. Raises UsageError for what JSON
        cannot hold.
        """
        try:
            payload = line_of({"payload": self.payload})
            line = f'{beginning}{self.seq},"type":"{self.type}","at":"{self.at}","generation":{self.generation},'
            return f"{line}{payload[1:]}\n".encode()
        except (ValueError, TypeError, RecursionError):
            return encode_line(self.to_doc())

    @classmethod
    def from_doc(cls, doc: Doc) -> Event:
        """The event in a decoded line. Raises ValueError if it is none."""
        # Whoever catches up with a crowd reads the events of all of them, and nearly each has these fields and no more.
        is_plain = [*doc] == _FIELDS
        session_id, run_id, seq, kind, at, generation, payload = doc.values() if is_plain else map(doc.get, _FIELDS)
        if type(seq) is not int or seq < 1:
            raise ValueError("no seq")
        if not (isinstance(kind, str) and is_count(generation) and isinstance(payload, dict)):
            raise ValueError("no event: type, generation or payload is missing")
        check_payload(kind, payload)
        extra = {} if is_plain else without(doc, _KNOWN_FIELDS)
        return cls(str(session_id), str(run_id), seq, kind, str(at or ""), generation, payload, extra)


def beginning_of(session_id: str, run_id: str) -> str:
    """What comes before the number in each line of that run."""
    return line_of({"sessionId": session_id, "runId": run_id, "seq": 0}).removesuffix("0}")


def check_payload(kind: str, payload: Doc) -> None:
    """Raises ValueError if a field is of another type than it has to be; of an unknown event, none is known."""
    if kind in _KNOWN:
        check_fields(payload, PAYLOAD, "event")
