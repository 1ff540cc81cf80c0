"""Tells what a file to be imported is, and takes it in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from agentrun import clock
from agentrun.adapters.foreign import claude_code, codex, llm_logs
from agentrun.adapters.foreign.lines import lines_of
from agentrun.commands.foreign import Origin, Taken, take_in
from agentrun.errors import UsageError
from agentrun.records.foreign import Told
from agentrun.store.tree import Tree

ARCHIVE = "archive"
FORMATS = (ARCHIVE, claude_code.KIND, codex.KIND, llm_logs.KIND)
_CHUNK = 1 << 20
# What compressed files begin with (RFC 1952, RFC 8878, and the manuals of the others), and what unpacks them.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2"}
# Lines that are looked at to tell whose they are.
_LOOKED_AT = 50


def kind_of(source: BinaryIO, path: str) -> str:
    """Which of `FORMATS` the file is in, by what it holds; `source` is at its beginning again. Raises UsageError."""
    beginning = source.read(512)
    source.seek(0)
    if _is_archive(beginning):
        return ARCHIVE
    if beginning.startswith(llm_logs.MAGIC):
        return llm_logs.KIND
    for magic, program in _COMPRESSED.items():
        if beginning.startswith(magic):
            raise UsageError(f"{path} is compressed", hint=f"unpack it: {program} -dc FILE | agentrun import -")
    try:
        for line, _ in zip(lines_of(source), range(_LOOKED_AT), strict=False):
            if isinstance(line, dict) and codex.is_line(line):
                return codex.KIND
            if isinstance(line, dict) and claude_code.is_line(line):
                return claude_code.KIND
    finally:
        source.seek(0)
    raise UsageError(
        f"{path}: nobody here can tell what this is", hint=f"say so, if you know: --format {'|'.join(FORMATS)}"
    )


def check_beginning(source: BinaryIO, path: str, form: str | None) -> None:
    """Raises UsageError if what has come so far cannot be the beginning of a file in the format `form`, or in any."""
    source.seek(0)
    if form == ARCHIVE and not _is_archive(source.read(512)):
        raise UsageError(f"{path} is no archive", hint="see what it is: leave out --format")
    if form is None:
        kind_of(source, path)


def _is_archive(beginning: bytes) -> bool:
    return beginning[257:262] == b"ustar"


def import_foreign(tree: Tree, source: BinaryIO, path: str, kind: str, new_id: str | None) -> list[Taken]:
    """Takes in what another program recorded. Executes nothing, and opens nothing but the file.

    Raises NameTaken, StorageFailed, CorruptRecord, UsageError.
    """
    return take_in(tree, _origin(source, path, kind), _told(source, path, kind), new_id)


def _told(source: BinaryIO, path: str, kind: str) -> Iterator[Told]:
    if kind == claude_code.KIND:
        return claude_code.read(source)
    if kind == codex.KIND:
        return codex.read(source)
    if path == "-":
        raise UsageError("a database cannot come through a pipe", hint="name its file: agentrun import logs.db")
    return llm_logs.read(path)


def _origin(source: BinaryIO, path: str, kind: str) -> Origin:
    digest, size = hashlib.sha256(), 0
    while piece := source.read(_CHUNK):
        digest.update(piece)
        size += len(piece)
    source.seek(0)
    changed = clock.timestamp(os.fstat(source.fileno()).st_mtime)
    return Origin(kind, os.path.basename(path), digest.hexdigest(), size, changed)
