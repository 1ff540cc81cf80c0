"""What is said when the disk refused half way: what was asked may be stored all the same, what was recorded is kept.

The contexts are no generators: what `contextlib` loads costs a quick command more than what it does.
"""

from __future__ import annotations

import errno
import os

from agentrun.errors import AgentrunError, NotFound, StorageFailed

_FILES = frozenset({errno.EMFILE, errno.ENFILE})
# Of these there may be too little anywhere, also where nobody asks for a file of the tree.
_SHORT = _FILES | {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.store.runs import RunDir


class maybe_stored:
    """Says of a refusal by the disk in the block that nobody knows whether it was stored, and where to look: `name`.

    A record may be whole on a disk that had no room for the next one, or did not say whether it lasts. `again` is how
    to ask for the same once more without doing it twice.
    """

    def __init__(self, name: str, again: str) -> None:
        self._name = name
        self._again = again

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StorageFailed):
            hint = (
                f"it may be stored or not: look with: agentrun show {self._name}\n{_remedy(error)}, then {self._again}"
            )
            raise StorageFailed(error.message, hint=hint, session_id=error.session_id, run_id=error.run_id) from error


class kept_of:
    """Says of a refusal by the disk, while a run is executed in the block, what is kept and how the run goes on."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        refused = error if isinstance(error, StorageFailed) else shortage(error)
        if refused is None:
            return
        name = self._run_dir.name
        try:
            is_over = self._run_dir.load().is_over
        except AgentrunError:
            return  # it was removed, or cannot be read: nothing that could be said of it is certain
        message = f"{name} is not executed any more: {refused.message}"
        hint = (
            f"what it recorded is kept; {_remedy(refused)}, then take it up with: agentrun resume {name}\n"
            f"or end it with: agentrun cancel {name}"
        )
        if is_over:
            message = f"{name} has ended, and that could not be completed: {refused.message}"
            hint = f"it is stored how it ended; {_remedy(refused)}, then see: agentrun show {name}"
        run = self._run_dir
        raise StorageFailed(message, hint=hint, session_id=run.session_id, run_id=run.run_id) from error


def shortage(error: BaseException | None) -> StorageFailed | None:
    """What the machine had too little of, if that is what lies behind `error`: foreign code stumbles over it, too."""
    while error is not None:
        number = _number(error)
        if number in _SHORT:
            where = getattr(error, "filename", None) or "the system"
            hint = "let it open more files: ulimit -n" if number in _FILES else _REMEDIES[errno.errorcode[number]]
            return StorageFailed(
                f"{where}: {os.strerror(number)} ({errno.errorcode[number]})",
                hint=f"nothing was acknowledged, though it may be stored; {hint}",
            )
        error = error.__cause__ or error.__context__
    return None


def without_directory(error: BaseException) -> NotFound | None:
    """That the directory this process is in was removed, if that is what lies behind `error`.

    Every path that is not absolute leads nowhere then (getcwd(2)), wherever it was given.
    """
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return None
    try:
        os.getcwd()
    except FileNotFoundError:
        return NotFound(
            "the directory that you are in was removed, so a path that does not begin with / leads nowhere",
            hint="go to one that is there, or give the whole path; nothing was done",
        )
    return None


def _number(error: BaseException) -> int | None:
    # Python says of memory what the system would: to it that a program asks for more than there is is no bug.
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return errno.EAGAIN
    if isinstance(error, ImportError):
        return _number_of_loader(str(error))
    number = getattr(error, "errno", None)
    # Of a call of the system's own EAGAIN says something else: not now.
    return number if number != errno.EAGAIN else None


def _number_of_loader(words: str) -> int | None:
    """What a part of Python could not be loaded for, of which dlopen(3) has nothing but words."""
    if "failed to map segment" in words:
        return errno.ENOMEM
    return next((number for number in _SHORT if os.strerror(number) in words), None)


# What helps, by what the system calls the trouble.
_REMEDIES = {
    "ENOSPC": "make room",
    "EDQUOT": "make room",
    "ENOMEM": "let it have more memory",
    "EAGAIN": "let it have more processes and threads (ulimit -u)",
    "EFBIG": "let files be larger (ulimit -f)",
    "EMFILE": "let it open more files (ulimit -n)",
    "ENFILE": "let it open more files",
    "EROFS": "let it be written again (mount)",
}


def _remedy(error: StorageFailed) -> str:
    return next((way for name, way in _REMEDIES.items() if f"({name})" in error.message), "see to the disk")
