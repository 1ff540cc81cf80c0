"""Unpacks an archive into a staging directory, and looks at what it holds before anybody else does.

Nothing in an archive is believed: a name is taken apart and each part opened below the one before it, following no
link; a name that stands there twice is refused; and so is a session with a run that is not over, for whoever recovers
runs would execute it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from agentrun import ids
from agentrun.errors import CorruptRecord, Denied, NotFound, UsageError
from agentrun.records.codec import Doc, check_version, decode, encode_document, encode_line
from agentrun.store import layout
from agentrun.store.archive import DEEPEST, KIND, MANIFEST
from agentrun.store.archive.tar import Member, members
from agentrun.store.disk import Directory
from agentrun.store.sessions import SessionDir
from agentrun.store.staging import Staging

# Bytes of the first member, which says what this is.
_LARGEST_MANIFEST = 1 << 16
# Bytes of a document, and of a line of a log: they are read whole by everybody who looks at the session.
LARGEST_RECORD = 256 << 20
# Names in one archive: each costs an inode, whatever its size.
MOST_MEMBERS = 1_000_000

Rewrite = Callable[[Iterator[bytes]], Iterator[bytes]]


def unpack(staging: Staging, source: BinaryIO, path: str, new_id: str | None = None) -> list[str]:
    """Unpacks the sessions of the archive that `source` holds into `staging`; their ids, in the order of the archive.

    With `new_id` there must be one session, which gets that id. Raises Denied for an archive of another account and for
    what must not be unpacked, CorruptRecord if it is no whole archive.
    """
    unpacking = _Unpacking(staging, path, new_id)
    every = members(source, path)
    _check_manifest(next(every, None), path, staging.account)
    for number, (member, data) in enumerate(every, start=1):
        if number > MOST_MEMBERS:
            raise Denied(f"{path} has more than {MOST_MEMBERS:,} members")
        unpacking.take(member, data)
    for session_id in unpacking.session_ids:
        _check_session(staging.session(session_id), path)
    return unpacking.session_ids


class _Unpacking:
    def __init__(self, staging: Staging, path: str, new_id: str | None) -> None:
        self.session_ids: list[str] = []
        self._staging = staging
        self._path = path
        self._new_id = new_id
        self._old_id = ""

    def take(self, member: Member, data: Iterator[bytes]) -> None:
        """Makes the file or directory. Raises Denied for a name that may not be made, or is there already."""
        place = self._place_of(member)
        if len(place) == 1:
            self._begin(place[0], member)
            return
        if place[0] != self._old_id:
            raise self._refused(member, "is in no directory that stands before it")
        directory = self._directory_of(member, place)
        if _is_document(place[1:]) and member.size > LARGEST_RECORD:
            raise self._refused(member, f"is larger than {LARGEST_RECORD:,} bytes")
        rewrite = self._rewrite(place[1:])
        if member.is_directory:
            is_new = directory.make(place[-1])
        else:
            pieces = self._bounded(member, data) if _is_log(place[1:]) else data
            is_new = directory.create(place[-1], rewrite(pieces), executable=member.is_executable)
        if not is_new:
            raise self._refused(member, "stands there twice")

    def _bounded(self, member: Member, data: Iterator[bytes]) -> Iterator[bytes]:
        length = 0
        for piece in data:
            newline = piece.rfind(b"\n")
            length = length + len(piece) if newline < 0 else len(piece) - newline
            if length > LARGEST_RECORD:
                raise self._refused(member, f"has a line of more than {LARGEST_RECORD:,} bytes")
            yield piece

    def _directory_of(self, member: Member, place: list[str]) -> Directory:
        directory = self._staging.directory.open(self.session_ids[-1])
        try:
            for name in place[1:-1]:
                directory = directory.open(name)
        except (NotFound, Denied) as error:
            raise self._refused(member, "is in no directory that stands before it") from error
        return directory

    def _begin(self, session_id: str, member: Member) -> None:
        if not member.is_directory:
            raise self._refused(member, "is no directory of a session")
        if self._new_id is not None and self.session_ids:
            raise UsageError(f"{self._path} has several sessions; one id cannot be given to all of them")
        name = self._new_id or session_id
        if not self._staging.directory.make(name):
            raise self._refused(member, "stands there twice")
        self.session_ids.append(name)
        self._old_id = session_id

    def _place_of(self, member: Member) -> list[str]:
        """The parts of the name. Raises Denied unless each may be a name in a directory, and the first a session's."""
        parts = member.name.split(b"/")
        if any(part in (b"", b".", b"..") or b"\0" in part or len(part) > 255 for part in parts):
            raise self._refused(member, "is no path that stays inside")
        if len(parts) > DEEPEST + 1:
            raise self._refused(member, "is too deep")
        place = [os.fsdecode(part) for part in parts]
        if not ids.is_id(place[0]):
            raise self._refused(member, "is in no session")
        is_lease = len(place) == 4 and place[1] == layout.RUNS and place[3] == layout.LEASE
        if is_lease or place[1:] == [layout.ACTIVE]:
            raise self._refused(member, "says that a run is not over, and no such session is archived")
        return place

    def _refused(self, member: Member, why: str) -> Denied:
        shown = repr(member.name[:200].decode("utf-8", "replace"))
        return Denied(f"{self._path}: {shown} at byte {member.offset} {why}; nothing was imported")

    def _rewrite(self, place: list[str]) -> Rewrite:
        """What becomes of the bytes of a file: they stay, unless the session gets another id and the file names it."""
        if self._new_id is None or self._new_id == self._old_id:
            return lambda data: data
        if _is_log(place):
            return self._rewrite_lines
        if _is_document(place):
            return self._rewrite_document
        return lambda data: data

    def _rewrite_lines(self, data: Iterator[bytes]) -> Iterator[bytes]:
        rest = b""
        for piece in data:
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield self._renamed(line, encode_line) or line + b"\n"
        yield rest

    def _rewrite_document(self, data: Iterator[bytes]) -> Iterator[bytes]:
        whole = b"".join(data)
        yield self._renamed(whole, encode_document) or whole

    def _renamed(self, data: bytes, encode: Callable[[Doc], bytes]) -> bytes | None:
        try:
            doc = decode(data)
        except ValueError:
            return None  # damaged, and as damaged as it was
        return encode(doc | {"sessionId": self._new_id}) if doc.get("sessionId") == self._old_id else None


def _check_manifest(first: tuple[Member, Iterator[bytes]] | None, path: str, account: str) -> None:
    no_archive = CorruptRecord(
        f"{path} is no archive that agentrun made: it does not begin with {MANIFEST}",
        path=path,
        offset=0,
        hint="make one with: agentrun export SESSION --format archive --output FILE.tar",
    )
    if first is None:
        raise no_archive
    member, data = first
    if member.name != MANIFEST.encode() or member.is_directory or member.size > _LARGEST_MANIFEST:
        raise no_archive
    try:
        doc = decode(b"".join(data))
    except ValueError as error:
        raise no_archive from error
    if doc.get("type") != KIND:
        raise no_archive
    check_version(doc, path)
    if doc.get("accountId") != account:
        raise _of_another(path, doc.get("accountId"), account)


def _check_session(session: SessionDir, path: str) -> None:
    """Raises CorruptRecord if it is no session, Denied if it is another account's or has a run that is not over."""
    for name in (layout.RUNS, layout.KEYS):
        if session.directory.stat(name) is None:
            raise CorruptRecord(f"{path}: {session.session_id} has no {name}/", path=path, offset=0)
    try:
        doc = decode(session.directory.read(layout.SESSION) or b"{}")
    except ValueError:
        doc = {}  # what is wrong with it is said below
    if doc.get("accountId") not in (None, session.account):
        raise _of_another(path, doc.get("accountId"), session.account)
    session.read()
    session.check_writable()
    begun = session.newest_prompt()
    # Also one that was accepted and is not there: the next writer would make it.
    for run_id in {*session.run_ids(), *(begun.queue if begun else ())}:
        run_dir = session.run(run_id)
        run = run_dir.load()
        # An end that no event tells is known from files that may be lost as well.
        if not run.is_over or run.applied_seq > run_dir.events.last_seq():
            left = "has lost events" if run.is_over else "is not over"
            raise Denied(
                f"{path}: {session.session_id}/{run_id} {left}; imported, it could be executed a second time",
                session_id=session.session_id,
                run_id=run_id,
            )


def _of_another(path: str, account: object, ours: str) -> Denied:
    named = repr(str(account)[:64])
    return Denied(
        f"{path} was made by the account {named}, and this is {ours!r}",
        hint="import it into an account of that name: agentrun --account NAME import FILE",
    )


def _is_log(place: list[str]) -> bool:
    return place == [layout.MESSAGES] or (_is_of_run(place) and place[2] == layout.OPERATIONS)


def _is_document(place: list[str]) -> bool:
    return place in ([layout.SESSION], [layout.SUMMARY]) or (_is_of_run(place) and place[2] == layout.RUN)


def _is_of_run(place: list[str]) -> bool:
    return len(place) == 3 and place[0] == layout.RUNS
