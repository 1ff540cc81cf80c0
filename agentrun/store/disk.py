"""Files and directories by descriptor: the only module that opens anything in the tree for writing.

Every component is opened relative to its parent and never through a symbolic link, so that a path that was checked
cannot become another one. Whatever is opened must belong to the account's user and be of the expected kind; a FIFO
planted in place of a file is refused and does not block. Directories are 0700 and files 0600 from their first moment.
"""

from __future__ import annotations

import errno
import os
import stat

from agentrun.errors import AgentrunError, Denied, NotFound, StorageFailed
from agentrun.store.layout import UNFINISHED_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, BinaryIO

_COMMON = os.O_CLOEXEC | os.O_NOFOLLOW
# O_NONBLOCK: opening a FIFO for reading would wait for a writer; it changes nothing for regular files.
_READ = os.O_RDONLY | os.O_NONBLOCK | _COMMON
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_COPY = 1 << 20
# Bytes of a document that is read at once; of a longer one it is looked at first whether it is one at all.
_SHORT = 1 << 20
_CANNOT_SYNC = frozenset({errno.EROFS, errno.EINVAL, errno.EBADF})


def translated(error: OSError, path: str) -> AgentrunError:
    """The deliberate error for what the system said about `path`."""
    from agentrun.store.in_the_way import refusal  # here: most commands meet none

    return refusal(error, path)


class speaking_of:
    """Turns what the system says inside the block into an error that names `path`."""

    # No generator: this stands around every call of the system, and costs a third that way.
    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise translated(error, self._path) from error


class Directory:
    """An open directory of the tree. `path` is for messages only; access goes through the descriptor."""

    # What `store.locks` keeps for as long as this handle is open.
    lock_place: Any = None

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def root(cls, path: str) -> Directory:
        """The directory at `path`, which may be reached through symbolic links. Raises NotFound, Denied."""
        with speaking_of(path):
            return cls(os.open(path, _DIRECTORY), path)

    def is_there(self) -> bool:
        """Whether the directory exists; see `Expected`."""
        return True

    def another(self) -> Directory:
        """Another handle of the same directory."""
        return Directory(os.dup(self.fd), self.path)

    def close(self) -> None:
        """Closes the descriptor; the handle cannot be used afterwards."""
        self.lock_place = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Handles live as long as whoever uses them; a process that opens many sessions must not run out.
        self.close()

    def at(self, name: str) -> str:
        """The path of `name` in here, for messages."""
        return self.path + name if self.path.endswith("/") else f"{self.path}/{name}"

    def open(self, name: str, *, owned: bool = True) -> Directory:
        """The directory `name` in here. Raises NotFound, or Denied if it is a link, no directory or another's."""
        path = self.at(name)
        try:
            opened = Directory(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd), path)
        except OSError as error:
            opened = None
            if not (owned and error.errno == errno.EACCES and self.is_foreign(name)):
                raise translated(error, path) from error
        if opened is None or (owned and os.fstat(opened.fd).st_uid != os.geteuid()):
            from agentrun.store.in_the_way import foreign  # here: most commands meet none

            raise foreign(path)
        return opened

    def make(self, name: str, mode: int = 0o700) -> bool:
        """Makes the directory `name`; False if that name is taken."""
        try:
            with speaking_of(self.at(name)):
                try:
                    os.mkdir(name, mode, dir_fd=self.fd)
                except FileExistsError:
                    return False
        except NotFound as error:
            raise StorageFailed(str(error)) from error
        return True

    def ensure(self, name: str) -> Directory:
        """The directory `name`, made if it is missing."""
        self.make(name)
        return self.open(name)

    def names(self) -> list[str]:
        """The names in here, in no order."""
        with speaking_of(self.path):
            return os.listdir(self.fd)

    def stat(self, name: str) -> os.stat_result | None:
        """What `name` is, without following a link; None if it is not there."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, self.at(name)) from error

    def has(self, name: str) -> bool:
        """Whether `name` is there, a link too; what cannot be looked up is not. Cheaper than `stat` where it is not."""
        return os.access(name, os.F_OK, dir_fd=self.fd, follow_symlinks=False)

    def is_directory(self, name: str) -> bool:
        """Whether `name` is a directory, and no link to one. Raises NotFound if it is not there."""
        found = self.stat(name)
        if found is None:
            raise NotFound(f"{self.at(name)} is not there")
        return stat.S_ISDIR(found.st_mode)

    def is_foreign(self, name: str) -> bool:
        """Whether `name` is there and belongs to another user."""
        found = self.stat(name)
        return found is not None and found.st_uid != os.geteuid()

    def open_file(self, name: str, flags: int = os.O_RDONLY, *, names: int = 1) -> int | None:
        """A descriptor of the regular file `name`, None if it is not there; O_CREAT makes it.

        Raises Denied if it is a link, has more than `names` names, belongs to another user or is no regular file.
        """
        opened = self._open_with_length(name, flags, names)
        return None if opened is None else opened[0]

    def read(self, name: str) -> bytes | None:
        """The bytes of the file `name`, None if it is not there."""
        return self._read(name, names=1)

    def read_linked(self, name: str) -> bytes | None:
        """As `read`, for a file made by `link_exclusively`: a crash may have left its temporary name as well."""
        return self._read(name, names=2)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Puts a fresh file with `data` in the place of `name`, whole or not at all.

        Callers hold the session's lock, so the temporary name is theirs alone; a left-over of a crash is discarded.
        """
        temporary = UNFINISHED_PREFIX + name
        self._write_fresh(temporary, (data,), durable=durable)
        with speaking_of(self.at(name)):
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        if durable:
            self.sync()

    def replace_from(self, name: str, source: BinaryIO) -> None:
        """As `replace`, with the rest of `source`, however much it is."""
        self.replace_with(name, iter(lambda: source.read(_COPY), b""))

    def replace_with(self, name: str, chunks: Iterable[bytes]) -> None:
        """As `replace`, with all `chunks` one after the other."""
        temporary = UNFINISHED_PREFIX + name
        self._write_fresh(temporary, chunks, durable=True)
        with speaking_of(self.at(name)):
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync()

    def create(self, name: str, chunks: Iterable[bytes], *, executable: bool = False) -> bool:
        """Makes the file `name` of all `chunks`, durable but for its name; False if that name is taken.

        Where no reader looks yet: what it holds so far is there before all of it is.
        """
        path = self.at(name)
        with speaking_of(path):
            try:
                fd = os.open(name, _FRESH, 0o700 if executable else 0o600, dir_fd=self.fd)
            except FileExistsError:
                return False
            try:
                for chunk in chunks:
                    write_all(fd, chunk)
                os.fsync(fd)
            finally:
                os.close(fd)
        return True

    def append_bytes(self, name: str, data: bytes) -> None:
        """Adds `data` at the end of `name`, for text that is no log."""
        fd = self.open_file(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        assert fd is not None  # O_CREAT
        try:
            with speaking_of(self.at(name)):
                write_all(fd, data)
        finally:
            os.close(fd)

    def link_exclusively(self, name: str, data: bytes) -> bool:
        """Makes `name` with `data`, whole, if the name is free; False if it is taken. Needs a `sync` to last."""
        temporary = UNFINISHED_PREFIX + name
        self._write_fresh(temporary, (data,), durable=True)
        try:
            with speaking_of(self.at(name)):
                try:
                    os.link(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
                except FileExistsError:
                    return False
        finally:
            self.remove(temporary)
        return True

    def move(self, name: str, new_name: str, *, into: Directory | None = None) -> bool:
        """Renames the directory `name`, or moves it; False if a directory that is not empty has the new name."""
        target = into or self
        with speaking_of(target.at(new_name)):
            try:
                os.rename(name, new_name, src_dir_fd=self.fd, dst_dir_fd=target.fd)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return False
                raise
        return True

    def check_room(self, files: int) -> None:
        """Makes sure that there is room now for that many small new files in here. Raises StorageFailed if not."""
        names = [f"{UNFINISHED_PREFIX}room-{number}" for number in range(files)]
        try:
            for name in names:
                self._write_fresh(name, (bytes(512),), durable=False)
        finally:
            for name in names:
                self.remove(name)

    def remove(self, name: str) -> None:
        """Removes the file `name` if it is there."""
        with speaking_of(self.at(name)):
            try:
                os.unlink(name, dir_fd=self.fd)
            except FileNotFoundError:
                return

    def remove_directory(self, name: str) -> None:
        """Removes the empty directory `name`."""
        with speaking_of(self.at(name)):
            os.rmdir(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Makes the names in here last through a power cut."""
        with speaking_of(self.path):
            os.fsync(self.fd)

    def sync_file(self, name: str) -> None:
        """Makes what `name` holds last, if it is there and the place can be written at all."""
        fd = self.open_file(name)
        if fd is None:
            return
        try:
            sync_for_reading(fd, self.at(name))
        finally:
            os.close(fd)

    def _open_with_length(self, name: str, flags: int, names: int) -> tuple[int, int] | None:
        """As `open_file`, with the length of the file."""
        # Without a context around it: who lists sessions passes here five times for each.
        try:
            fd = os.open(name, flags | _READ, 0o600, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, self.at(name)) from error
        found = os.fstat(fd)
        wrong = _wrong_with(found, names)
        if wrong is not None:
            from agentrun.store.in_the_way import way_out  # as above

            os.close(fd)
            raise Denied(f"{self.at(name)} {wrong}", hint=way_out(self.path, found))
        return fd, found.st_size

    def _read(self, name: str, names: int) -> bytes | None:
        opened = self._open_with_length(name, os.O_RDONLY, names)
        if opened is None:
            return None
        fd, length = opened
        try:
            # One byte more tells that it has not grown since: then there is nothing to be asked for again.
            data = os.read(fd, length + 1) if length <= _SHORT else b""
            if len(data) == length:
                return data
            from agentrun.store.lengths import read_on  # hardly any document is so long

            return read_on(fd, length, data, self.at(name))
        except OSError as error:
            raise translated(error, self.at(name)) from error
        finally:
            os.close(fd)

    def _write_fresh(self, name: str, chunks: Iterable[bytes], *, durable: bool) -> None:
        self.remove(name)
        path = self.at(name)
        with speaking_of(path):
            fd = os.open(name, _FRESH, 0o600, dir_fd=self.fd)
            try:
                for chunk in chunks:
                    write_all(fd, chunk)
                if durable:
                    os.fsync(fd)
            except OSError:
                # What did not get in whole is of no use to anyone, and a full disk wants its room back.
                os.unlink(name, dir_fd=self.fd)
                raise
            finally:
                os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Writes all of `data`; a short write is followed by another one, which says why. Raises OSError."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def data_sync(fd: int) -> None:
    """Makes the file's bytes and length last (fdatasync(2)). Raises OSError."""
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_for_reading(fd: int, path: str) -> None:
    """Makes sure that what was just read of `path` lasts, before it is told to anyone.

    A file system that cannot be written cannot lose it either.
    """
    try:
        data_sync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise StorageFailed(f"{translated(error, path)}: whether the last record survived is unknown") from error


def _wrong_with(found: os.stat_result, names: int) -> str | None:
    """Why a file is not one that may be read or written here, in words."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    # A second name may lie outside the tree, where the file could be changed. (0: just replaced by a newer one.)
    return "has several names (hard links)" if found.st_nlink > names else None
