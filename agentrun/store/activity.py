"""`activity.jsonl`: which session of an account changed last. A hint: if it is lost, the records tell the same.

So nothing depends on it: what lies in its place and is no file of the user's own is neither read nor written, keeps
nobody from anything, and is told by `check`.
"""

from __future__ import annotations

import os
import stat
from itertools import count

from agentrun import clock, ids
from agentrun.errors import CorruptRecord, Denied
from agentrun.records.codec import Doc, encode_line
from agentrun.store.disk import Directory, speaking_of, write_all
from agentrun.store.layout import ACTIVITY, damaged_name
from agentrun.store.log import Log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Activity:
    """The hint of the account whose directory is `account`."""

    def __init__(self, account: Directory) -> None:
        self.account = account

    def note(self, session_id: str, *, durable: bool = False) -> None:
        """Notes that a session changed now, where it can be noted. Needs no lock: a line is one append."""
        try:
            fd = self.account.open_file(ACTIVITY, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except Denied:
            return
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
        # One that can be read and not written tells of a time that is over: `@last` must not be that.
        if self.fault() is None:
            try:
                yield from Log(self.account, ACTIVITY).backward(_session_id)
            except (Denied, CorruptRecord):
                return  # planted since, or no hint any more

    def noted_since(self, offset: int) -> tuple[set[str] | None, int]:
        """The sessions that were noted behind byte `offset`, and the offset to ask from the next time.

        A hint that has become shorter was made anew: all of it is news. None instead of sessions: there is no hint.
        """
        if self.fault() is not None:
            return None, 0
        log = Log(self.account, ACTIVITY)
        start = offset if offset <= log.size() else 0
        noted, end = set(), start
        try:
            for end, name in log.forward(_session_id, start):  # noqa: B007 - the last one is asked from
                noted.add(name)
        except CorruptRecord:
            return None, 0
        return noted, end

    def sync(self) -> None:
        """Makes what was noted last, where it can be noted."""
        try:
            self.account.sync_file(ACTIVITY)
        except Denied:
            return

    def fault(self) -> str | None:
        """Why the hint cannot be had, in words; None if it can, or is only not there yet."""
        found = self.account.stat(ACTIVITY)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode):
            return "is not a regular file"
        if found.st_uid != os.geteuid():
            return "belongs to another user"
        if found.st_nlink > 1:
            return "has several names (hard links)"
        is_open = found.st_mode & (stat.S_IRUSR | stat.S_IWUSR) == stat.S_IRUSR | stat.S_IWUSR
        return None if is_open else "may not be read and written"

    def set_aside(self) -> None:
        """Gives what lies in the hint's place another name; the next note begins a new one."""
        names = (damaged_name(ACTIVITY, number) for number in count())
        free = next(name for name in names if self.account.stat(name) is None)
        self.account.move(ACTIVITY, free)
        self.account.sync()


def _session_id(doc: Doc) -> str:
    name = doc.get("sessionId")
    if not (isinstance(name, str) and ids.is_id(name)):
        raise ValueError("no sessionId")
    return name
