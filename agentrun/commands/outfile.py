"""A file that a command writes for its user: there whole or not at all, and over no other unless that was said."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from agentrun.errors import AgentrunError, Denied, NameTaken, NotFound, StorageFailed, UsageError
from agentrun.store.disk import speaking_of
from agentrun.store.in_the_way import no_directory

__all__ = ["new_file", "no_directory", "reading", "spool"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

# What no file can be called, whatever is there (path_resolution(7)).
_NO_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
# File systems without hard links say one of these.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})


@contextmanager
def new_file(path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file to write, which becomes `path` when the block ends well; nothing is left of it otherwise.

    Raises NameTaken if something is there already, unless it is a file and `overwrite` is true; and UsageError, Denied,
    NotFound, StorageFailed.
    """
    _check_free(path, overwrite=overwrite)
    folder = os.path.dirname(os.path.abspath(path))
    # No number of a process: containers give all theirs the same, and one that was killed has left its file.
    temporary = os.path.join(folder, f".agentrun-{secrets.token_hex(8)}")
    try:
        with speaking_of(path):
            # Private until its user says otherwise: a conversation may hold anything.
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except NotFound as error:
        wanted = shlex.quote(os.path.dirname(path) or ".")
        raise NotFound(str(error), hint=f"make its directory: mkdir -p {wanted}") from error
    except Denied as error:
        in_the_way = no_directory(os.path.dirname(path))
        if in_the_way is not None:
            error.hint = f"see what it is: ls -ld {shlex.quote(in_the_way)}"
        raise
    try:
        with speaking_of(path), os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with speaking_of(path):
            _put(temporary, path, overwrite=overwrite)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    _sync_folder(folder)


@contextmanager
def spool() -> Iterator[BinaryIO]:
    """A file without a name, gone with the block, for what has to be there whole before it is passed on."""
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError as error:
        # It has tried each of them: they are not there, not to be written, or full.
        raise StorageFailed(
            "there is no place for a temporary file: none of the usual directories takes one",
            hint="name a directory that does: TMPDIR=DIR agentrun ...",
        ) from error
    with speaking_of(place), tempfile.TemporaryFile() as file:
        yield file


def reading(path: str) -> speaking_of:
    """A block in which what the system says is about the file `path`, which a user has named."""
    return speaking_of(path)


def _check_free(path: str, *, overwrite: bool) -> None:
    try:
        with speaking_of(path):
            found = os.lstat(path)
    except NotFound:
        return
    except ValueError as error:
        raise UsageError(f"{path!r} cannot be a file: {error}") from error
    except AgentrunError as error:
        number = getattr(error.__cause__, "errno", None)
        if number == errno.ENOTDIR:
            return  # said where it is opened, with what is in the way
        if number in _NO_NAME:
            raise UsageError(error.message, hint="choose another name") from error
        raise
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(
            f"{path} is there and is no regular file", hint="to write into it, send the output there: > FILE"
        )
    if not overwrite:
        raise _taken(path)


def _put(temporary: str, path: str, *, overwrite: bool) -> None:
    if overwrite:
        os.rename(temporary, path)
        return
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The name is taken first, so that of two only one can have it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.rename(temporary, path)


def _taken(path: str) -> NameTaken:
    return NameTaken(f"{path} is there already", hint="choose another name, or replace it with: --overwrite")


def _sync_folder(folder: str) -> None:
    with speaking_of(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):
                raise
        finally:
            os.close(fd)
