"""`resources/` of an account: which write has which resource outside, across all sessions.

A claim is durable before its write is sent off, and stands as long as the write is under way or unresolved. The file is
a hint that points to a record: whether the claim still holds is read from the operation that made it, so nothing has to
be cleaned up after a crash, and a claim whose run or session is gone is free. Claims are made and taken back under the
lock of the directory, which is held for as long as that takes, inside the lock of a session and never around one.
"""

from __future__ import annotations

from agentrun import clock
from agentrun.errors import AgentrunError, Denied, NotFound
from agentrun.records.claim import Claim, file_name
from agentrun.records.codec import decode, encode_document
from agentrun.records.operation import HELD, HELD_UNKNOWN, Operation
from agentrun.records.run import Run
from agentrun.states import OperationStatus
from agentrun.store import layout
from agentrun.store.disk import Directory
from agentrun.store.locks import Held, directory_lock
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


class Resources:
    """The claims of the account to which `session` belongs."""

    def __init__(self, session: SessionDir) -> None:
        self._session = session
        self._account = session.activity.account

    def claim(self, held: Held, run_dir: RunDir, operation: Operation) -> str | None:
        """Claims the resource of `operation`, durable; returns None, or in words who has it.

        The run is registered with it already. Raises StorageFailed.
        """
        assert operation.resource is not None
        directory = self._made()
        with directory_lock(directory) as is_locked:
            if not is_locked:
                return f"{HELD_UNKNOWN} {operation.resource!r} cannot be told: {directory.path} stays locked"
            holder = self._holder(directory, run_dir, operation)
            if holder is not None:
                return holder
            claim = Claim(
                operation.resource, run_dir.session_id, run_dir.run_id, operation.operation_id,
                operation.name, operation.idempotency_key, clock.timestamp(),
            )  # fmt: skip
            directory.replace(file_name(operation.resource), encode_document(claim.to_doc()))
            return None

    def release_settled(self, held: Held, run_dir: RunDir) -> None:
        """Takes back the claims of a run's operations that are in doubt no more.

        Where the directory stays locked they are left: their record frees them as well.
        """
        directory = self._found()
        settled = _settled(directory, run_dir) if directory else []
        if directory is None or not settled:
            return
        # Others build on it now, and a power cut must not bring the doubt back.
        run_dir.events.sync()
        with directory_lock(directory) as is_locked:
            # Somebody who saw that it was free may have replaced it by now.
            for name in settled if is_locked else ():
                if _is_of(directory, name, run_dir):
                    directory.remove(name)

    def _holder(self, directory: Directory, run_dir: RunDir, operation: Operation) -> str | None:
        """Who else has the resource, in words."""
        name = file_name(str(operation.resource))
        try:
            if directory.stat(name) is None:
                return None
            claim = _read(directory, name)
            if claim is None:
                return f"{HELD_UNKNOWN} {operation.resource!r} cannot be told: {directory.at(name)} is damaged"
            if claim.is_of(run_dir.session_id, run_dir.run_id, operation):
                return None
            return self._still_held(claim)
        except AgentrunError as error:
            # Whoever cannot be asked is taken for a holder: the other way round two writes could meet.
            return f"{HELD_UNKNOWN} {operation.resource!r} cannot be told: {error.message}"

    def _still_held(self, claim: Claim) -> str | None:
        try:
            sessions = self._account.open(layout.SESSIONS)
            session = SessionDir(
                self._session.account, claim.session_id, sessions.open(claim.session_id), self._session.activity
            )
            if not session.has_run(claim.run_id):
                return None
            run_dir = session.run(claim.run_id)
        except NotFound:
            return None  # removed, and its operations with it
        run = run_dir.load()
        operation = _in_doubt(run, claim)
        if operation is None and not run.is_over and run_dir.unread(run):
            why = f"events of {claim.session_id}/{claim.run_id}, which claimed it, are damaged or lost"
            return f"{HELD_UNKNOWN} {claim.resource!r} cannot be told: {why}"
        if operation is None:
            # What is about to be written builds on it.
            run_dir.events.sync_for_reading()
            return None
        return _words(claim, operation)

    def _made(self) -> Directory:
        if self._account.make(layout.RESOURCES):
            self._account.sync()
        return self._account.open(layout.RESOURCES)

    def _found(self) -> Directory | None:
        try:
            return self._account.open(layout.RESOURCES)
        except (NotFound, Denied):
            return None  # what is planted there frees nothing, and keeps no run from its end


def _read(directory: Directory, name: str) -> Claim | None:
    data = directory.read(name)
    try:
        return Claim.from_doc(decode(data)) if data else None
    except ValueError:
        return None


def _settled(directory: Directory, run_dir: RunDir) -> list[str]:
    """The names of claims that operations of `run_dir` made which are in doubt no more."""
    return [name for name in directory.names() if _is_of(directory, name, run_dir)]


def _is_of(directory: Directory, name: str, run_dir: RunDir) -> bool:
    try:
        claim = _read(directory, name)
    except Denied:
        return False
    if claim is None or (claim.session_id, claim.run_id) != (run_dir.session_id, run_dir.run_id):
        return False
    return _in_doubt(run_dir.seen, claim) is None


def _in_doubt(run: Run, claim: Claim) -> Operation | None:
    """The operation that made `claim`, as long as it is under way, about to be, or unresolved."""
    listed = run.unresolved_operations if run.is_over else run.open_operations + run.unresolved_operations
    return next((each for each in listed if claim.is_of(run.session_id, run.run_id, each)), None)


def _words(claim: Claim, operation: Operation) -> str:
    remote = f", remote id {operation.remote_id}" if operation.remote_id else ""
    who = f"{operation.operation_id} ({operation.name}{remote}) of {claim.session_id}/{claim.run_id}"
    is_open = operation.status in (OperationStatus.PENDING, OperationStatus.RUNNING)
    what = "which is under way" if is_open else "of which nobody knows yet what it did"
    return f"{HELD} {claim.resource!r} is claimed by {who}, {what}"
