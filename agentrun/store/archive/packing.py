"""Packs sessions: every file below their directories, in the order of the names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from agentrun.errors import SlotTaken
from agentrun.records.codec import encode_document
from agentrun.store import layout
from agentrun.store.archive import DEEPEST, MANIFEST, manifest
from agentrun.store.archive.tar import END, header, padding
from agentrun.store.disk import Directory, speaking_of
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir

_CHUNK = 1 << 20
_ANY = 1 << 30


class _Out(Protocol):
    """What is written into, in order."""

    def write(self, data: bytes, /) -> object:
        """Takes all of `data`."""


class Packer:
    """Writes an archive into `out`. `left_out` names what could not go in: links, devices, what belongs to others."""

    def __init__(self, account: str, out: BinaryIO) -> None:
        self.left_out: list[str] = []
        self._out = out
        about = encode_document(manifest(account))
        out.write(header(MANIFEST.encode(), len(about)) + about + padding(len(about)))

    def add(self, session: SessionDir) -> None:
        """Adds a session as it is at one moment: nobody writes into it meanwhile. `out` must not make anyone wait.

        Raises SlotTaken if a run of it is not over: a copy of it would be executed a second time elsewhere.
        """
        with writing(session) as writer:
            for run_dir in writer.open_runs():
                run = run_dir.current(writer)
                raise SlotTaken(
                    f"{run_dir.name} is {run.status.value}; a copy of it could be executed a second time",
                    hint=f"wait for it: agentrun wait {run_dir.name}\n"
                    f"or stop it: agentrun cancel {run_dir.name} --wait",
                    session_id=run.session_id,
                    run_id=run.run_id,
                )
            name = session.session_id.encode()
            self._out.write(header(name, 0, is_directory=True))
            _add_all(self._out, session.directory, name, (), self.left_out)

    def finish(self) -> None:
        """Writes the end, without which an archive is not whole."""
        self._out.write(END)


def _add_all(out: _Out, directory: Directory, path: bytes, place: tuple[str, ...], left_out: list[str]) -> None:
    """Packs what is below `directory` as `path`; adds to `left_out` what cannot be packed."""
    for name in sorted(directory.names(), key=os.fsencode):
        here, full = (*place, name), path + b"/" + os.fsencode(name)
        found = directory.stat(name)
        if found is None or _is_passing(here):
            continue
        is_ours = found.st_uid == os.geteuid()
        if is_ours and stat.S_ISDIR(found.st_mode) and len(here) < DEEPEST:
            out.write(header(full, 0, is_directory=True))
            with directory.open(name) as below:
                _add_all(out, below, full, here, left_out)
        elif is_ours and stat.S_ISREG(found.st_mode):
            _add_file(out, directory, name, full, in_scratch=_is_in_scratch(here))
        else:
            left_out.append(directory.at(name))


def _add_file(out: _Out, directory: Directory, name: str, full: bytes, *, in_scratch: bool) -> None:
    # What tools make may have several names; what agentrun makes has one.
    fd = directory.open_file(name, names=_ANY if in_scratch else 1)
    if fd is None:
        return
    try:
        found = os.fstat(fd)
        out.write(header(full, found.st_size, is_executable=bool(found.st_mode & 0o100)))
        for piece in _exactly(fd, found.st_size, directory.at(name)):
            out.write(piece)
        out.write(padding(found.st_size))
    finally:
        os.close(fd)


class _Digest:
    """Takes what a packer writes, and keeps the hash of it."""

    def __init__(self) -> None:
        import hashlib  # here: importing needs it for what is there already, and for nothing else

        self.sha256 = hashlib.sha256()

    def write(self, data: bytes, /) -> None:
        self.sha256.update(data)


def digest(directory: Directory) -> bytes:
    """The hash of what of a session's directory goes into an archive; the same for the same content.

    Nobody is locked out: whoever writes meanwhile makes it another one. Raises Denied for a file with several names.
    """
    out = _Digest()
    _add_all(out, directory, b"", (), [])
    return out.sha256.digest()


def _exactly(fd: int, size: int, path: str) -> Iterator[bytes]:
    left = size
    while left:
        with speaking_of(path):
            piece = os.read(fd, min(left, _CHUNK))
        # Somebody who holds no lock has made it shorter meanwhile; the header has promised its length.
        piece = piece or b"\0" * min(left, _CHUNK)
        left -= len(piece)
        yield piece


def _is_passing(place: tuple[str, ...]) -> bool:
    """Whether it says who executes a run now, or is in the making: of no use to anyone in a copy."""
    if _is_in_scratch(place):
        return False
    is_lease = len(place) == 3 and place[0] == layout.RUNS and place[2] == layout.LEASE
    return is_lease or place == (layout.ACTIVE,) or place[-1].startswith(layout.UNFINISHED_PREFIX)


def _is_in_scratch(place: tuple[str, ...]) -> bool:
    return len(place) > 3 and place[0] == layout.RUNS and place[2] == layout.SCRATCH
