"""`activity.jsonl`: which session of an account changed last. A hint: if it is lost, the records tell the same."""

from __future__ import annotations

import os

from agentrun import clock, ids
from agentrun.records.codec import Doc, encode_line
from agentrun.store.disk import Directory, speaking_of, write_all
from agentrun.store.layout import ACTIVITY
from agentrun.store.log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Activity:
    """The hint of the account whose directory is `account`."""

    def __init__(self, account: Directory) -> None:
        self.account = account

    def note(self, session_id: str, *, durable: bool = False) -> None:
        """Notes that a session changed now. Needs no lock: a line is one append."""
        fd = self.account.open_file(ACTIVITY, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        assert fd is not None  # O_CREAT
        try:
            with speaking_of(self.account.at(ACTIVITY)):
                size = os.fstat(fd).st_size
                # A line that another writer left torn must not swallow this one.
                torn = size and os.pread(fd, 1, size - 1) != b"\n"
                line = encode_line({"sessionId": session_id, "at": clock.timestamp()})
                write_all(fd, b"\n" + line if torn else line)
                if durable:
                    os.fsync(fd)
        finally:
            os.close(fd)

    def session_ids(self) -> Iterator[str]:
        """The sessions that were noted, the last one first, each as often as it was noted."""
        return Log(self.account, ACTIVITY).backward(_session_id)

    def noted_since(self, offset: int) -> tuple[set[str], int]:
        """The sessions that were noted behind byte `offset`, and the offset to ask from the next time.

        A hint that has become shorter was made anew: all of it is news.
        """
        log = Log(self.account, ACTIVITY)
        start = offset if offset <= log.size() else 0
        noted, end = set(), start
        for end, name in log.forward(_session_id, start):  # noqa: B007 - the last one is asked from
            noted.add(name)
        return noted, end


def _session_id(doc: Doc) -> str:
    name = doc.get("sessionId")
    if not (isinstance(name, str) and ids.is_id(name)):
        raise ValueError("no sessionId")
    return name
