"""`session.json`: what a session is called and whose it is. It holds no execution state."""

from __future__ import annotations

from agentrun.named import NamedTuple
from agentrun.records.codec import FORMAT_VERSION, Doc, without
from agentrun.records.message import Message

_FIELDS = frozenset(
    (
        *("formatVersion", "sessionId", "accountId", "title", "agent", "archived"),
        *("workingDirectory", "remoteIds", "forkedFrom", "createdAt", "updatedAt", "revision"),
    )
)

# Characters of what an agent from outside calls its conversation.
LONGEST_NAME = 4096


class Session(NamedTuple):
    """A session; `revision` rises with each rewriting, so that two windows cannot overwrite each other unseen."""

    session_id: str
    account_id: str
    title: str
    agent: str | None
    archived: bool
    working_directory: str | None
    remote_ids: Doc
    forked_from: Doc | None
    created_at: str
    updated_at: str
    revision: int
    format_version: int = FORMAT_VERSION
    extra: Doc = {}  # noqa: RUF012 - never written to, and NamedTuple has no default factory

    @property
    def copied(self) -> int:
        """How many of the conversation's first lines were copied from the session that this one was forked from."""
        return _seq_of(self.forked_from)

    def run_of(self, message: Message) -> str:
        """The run of a message: `run-3`, or `SESSION/run-3` where the line was copied and speaks of another's run."""
        origin, name = self.forked_from, message.run_id
        # A fork of a fork may have copied lines that were copied then already.
        while isinstance(origin, dict) and message.seq <= _seq_of(origin):
            name = f"{origin.get('sessionId')}/{message.run_id}"
            origin = origin.get("forkedFrom")
        return name

    def to_doc(self) -> Doc:
        """The document's fields in the order they are stored."""
        return {
            "formatVersion": self.format_version,
            "sessionId": self.session_id,
            "accountId": self.account_id,
            "title": self.title,
            "agent": self.agent,
            "archived": self.archived,
            "workingDirectory": self.working_directory,
            "remoteIds": self.remote_ids,
            "forkedFrom": self.forked_from,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "revision": self.revision,
        } | self.extra

    @classmethod
    def from_doc(cls, doc: Doc) -> Session:
        """The session in a decoded document. Raises ValueError if it is none."""
        session_id, account_id = doc.get("sessionId"), doc.get("accountId")
        if not (isinstance(session_id, str) and isinstance(account_id, str)):
            raise ValueError("no session: sessionId or accountId is missing")
        remote_ids, forked_from, revision = doc.get("remoteIds"), doc.get("forkedFrom"), doc.get("revision")
        return cls(
            session_id=session_id,
            account_id=account_id,
            title=_text(doc.get("title")),
            agent=doc.get("agent") if isinstance(doc.get("agent"), str) else None,
            archived=doc.get("archived") is True,
            working_directory=doc.get("workingDirectory") if isinstance(doc.get("workingDirectory"), str) else None,
            remote_ids=remote_ids if isinstance(remote_ids, dict) else {},
            forked_from=forked_from if isinstance(forked_from, dict) else None,
            created_at=_text(doc.get("createdAt")),
            updated_at=_text(doc.get("updatedAt")),
            revision=revision if isinstance(revision, int) else 1,
            format_version=doc.get("formatVersion", FORMAT_VERSION),
            extra=without(doc, _FIELDS),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seq_of(origin: Doc | None) -> int:
    seq = (origin or {}).get("seq")
    return seq if type(seq) is int else 0


def conversation_name(value: object) -> str | None:
    """`value` if an agent from outside may call a conversation so; None if not.

    It stands in `session.json`, which every listing reads, and is handed back as an argument or a variable: these hold
    no NUL and no character that is none (execve(2)).
    """
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or "\0" in value:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return value
