"""One line of `messages.jsonl`: what the user, the agent or agentrun itself said in the session."""

from __future__ import annotations

from agentrun.ids import run_number
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc, without
from agentrun.records.fields import ACTOR, MESSAGE, check_fields, wrong_field

_FIELDS = frozenset(["seq", "sessionId", "runId", "role", "mode", "text", "at", "key", "actor", "accept", "questionId"])
ROLES = ("user", "assistant", "system")

# `mode` of a user's message is the kind of input; of the others, what the line is for.
PROMPT, STEER, FOLLOW_UP, ANSWER = "prompt", "steer", "follow-up", "answer"
REPORT, QUESTION, ENDED = "report", "question", "ended"
# Of the system, and yet it begins a run: `agentrun compact`.
COMPACT = "compact"


class Message(NamedTuple):
    """A message; `seq` is dense per session from 1, `at` is for display only.

    `accept` stands only on what begins a run and holds all that is needed to make the run again. `question_id` links a
    question and its answer. `extra` keeps fields of other versions.
    """

    seq: int
    session_id: str
    run_id: str
    role: str
    mode: str | None
    text: str
    at: str
    key: str | None = None
    actor: Doc | None = None
    accept: Doc | None = None
    question_id: str | None = None
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    @property
    def is_input(self) -> bool:
        """Whether this is something the user said, which has to reach a run."""
        return self.role == "user"

    @property
    def begins_run(self) -> bool:
        """Whether a run follows from this line: from a prompt, or from the wish to have the history summarised."""
        return (self.role, self.mode) in (("user", PROMPT), ("system", COMPACT))

    @property
    def queue(self) -> list[str]:
        """Of what begins a run: the runs that were open from then on, in the order in which they get the slot."""
        accept = self.accept or {}
        behind = [run_id for run_id in accept.get("behind") or () if isinstance(run_id, str)]
        # At the head means behind the run that holds the slot and before those that wait for it.
        return [*behind[:1], self.run_id, *behind[1:]] if accept.get("atHead") else [*behind, self.run_id]

    def to_doc(self) -> Doc:
        """The line's fields in the order they are stored."""
        doc: Doc = {
            "seq": self.seq,
            "sessionId": self.session_id,
            "runId": self.run_id,
            "role": self.role,
            "mode": self.mode,
            "text": self.text,
            "at": self.at,
            "key": self.key,
            "actor": self.actor,
        }
        if self.accept is not None:
            doc["accept"] = self.accept
        if self.question_id is not None:
            doc["questionId"] = self.question_id
        return doc | self.extra

    @classmethod
    def from_doc(cls, doc: Doc) -> Message:
        """The message in a decoded line. Raises ValueError if it is none."""
        get = doc.get
        seq, run_id, role, text = get("seq"), get("runId"), get("role"), get("text")
        if type(seq) is not int or seq < 1:
            raise ValueError("no seq")
        if not (isinstance(run_id, str) and run_number(run_id) and role in ROLES and isinstance(text, str)):
            raise ValueError("no message: runId, role or text is missing")
        mode, at, key, actor = get("mode"), get("at"), get("key"), get("actor")
        accept, question_id = get("accept"), get("questionId")
        # To go through the table takes as long as all else here, so most lines are seen to be right without it.
        is_plain = type(mode) is type(at) is str and key is accept is question_id is None and type(actor) is dict
        if not is_plain or wrong_field(actor or {}, ACTOR):
            check_fields(doc, MESSAGE, "message")
        fields = (
            seq,
            str(get("sessionId")),
            run_id,
            str(role),
            mode,
            text,
            at or "",
            key,
            actor,
            accept,
            question_id,
            without(doc, _FIELDS),
        )
        # As `cls(*fields)` does it, without looking for what was left out.
        return tuple.__new__(cls, fields)
