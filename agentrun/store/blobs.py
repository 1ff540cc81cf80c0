"""Bytes kept under their SHA-256, so that a record can name them and nobody can put others in their place unseen."""

from __future__ import annotations

import os

from agentrun.ids import is_sha256
from agentrun.records.codec import Doc
from agentrun.store.disk import Directory, speaking_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, TypeGuard

_COPY = 1 << 20


def keep_blob(parent: Directory, folder: str, source: BinaryIO) -> Doc:
    """Keeps the rest of `source` in `folder`, synced; returns `{sha256 bytes}`. The caller holds the session's lock."""
    import hashlib  # here: listing and showing need none

    blobs = parent.ensure(folder)
    start = source.tell()
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_COPY):
        digest.update(chunk)
        size += len(chunk)
    name = digest.hexdigest()
    if blobs.stat(name) is None:
        source.seek(start)
        blobs.replace_from(name, source)
        parent.sync()
    return {"sha256": name, "bytes": size}


def is_digest(stored: object) -> TypeGuard[str]:
    """Whether a stored field can name kept bytes: everything else is damage, and never a file name."""
    return isinstance(stored, str) and is_sha256(stored)


def read_blob(parent: Directory, folder: str, sha256: object) -> bytes | None:
    """The bytes kept under `sha256`, if they are there and are those."""
    if not is_digest(sha256):
        return None
    if parent.stat(folder) is None:
        return None
    import hashlib

    data = parent.open(folder).read(sha256)
    return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None


def hash_of(parent: Directory, name: str) -> str | None:
    """The hash of what the file `name` holds, however much it is; None if it is not there."""
    fd = parent.open_file(name)
    if fd is None:
        return None
    import hashlib

    digest = hashlib.sha256()
    try:
        with speaking_of(parent.at(name)):
            while chunk := os.read(fd, _COPY):
                digest.update(chunk)
    finally:
        os.close(fd)
    return digest.hexdigest()
