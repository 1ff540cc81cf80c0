"""What a check can find, and which of it means that something is wrong."""

from __future__ import annotations

from agentrun.named import NamedTuple, StrEnum
from agentrun.records.codec import Doc


class Kind(StrEnum):
    """Kinds of findings; the words are public."""

    # A record, or what was delivered, cannot be read or contradicts itself.
    DAMAGED = "damaged"
    GAP = "gap"
    DUPLICATE = "duplicate"
    IMPOSSIBLE = "impossible"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    # What follows from the records, and is made again from them.
    SNAPSHOT = "snapshot"
    PUBLICATION = "publication"
    SLOT = "slot"
    KEY = "key"
    RUN = "run"
    # Traces of crashes and of other people, which change nothing.
    TORN = "torn"
    SET_ASIDE = "set_aside"
    LEFTOVER = "leftover"
    ORPHAN = "orphan"
    NEWER = "newer"


# A crash leaves these and the next writer takes care of them, or they were dealt with: nothing is wrong.
HARMLESS = frozenset({Kind.TORN, Kind.SET_ASIDE, Kind.LEFTOVER, Kind.ORPHAN, Kind.NEWER, Kind.RUN, Kind.SLOT})


class Finding(NamedTuple):
    """One thing that is not as it should be: what is said of `path`, and of which bytes, if of some.

    `is_repaired` says that it is no more: what follows from the records was made again, or the bytes were kept aside.
    """

    kind: Kind
    path: str
    said: str
    offset: int | None = None
    length: int | None = None
    session_id: str | None = None
    run_id: str | None = None
    is_repaired: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether this needs anybody's attention."""
        return self.kind not in HARMLESS and not self.is_repaired

    def to_doc(self) -> Doc:
        """The fields of `check --json`."""
        return {
            "kind": self.kind.value,
            "path": self.path,
            "offset": self.offset,
            "length": self.length,
            "said": self.said,
            "sessionId": self.session_id,
            "runId": self.run_id,
            "repaired": self.is_repaired,
            "wrong": self.is_wrong,
        }
