"""The part of tar(5) that an archive needs: regular files, directories, and names of any length.

Written and read here, because what reads every kind of archive would also read what must be refused: links, devices,
sparse files that are larger than their archive, headers that are kept in memory whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from agentrun.errors import CorruptRecord, Denied

BLOCK = 512
_CHUNK = 1 << 20
# PATH_MAX of Linux: no longer name could be a path.
_LONGEST_NAME = 4096
_MAGIC = b"ustar  \0"
_LARGEST_OCTAL = 8**11 - 1
_KINDS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a character device", b"4": "a block device", b"6": "a FIFO",
    b"S": "a sparse file",
}  # fmt: skip


class Member(NamedTuple):
    """A file or directory of an archive; `name` has no slash at its end. `offset` is where its header begins."""

    name: bytes
    size: int
    is_directory: bool
    is_executable: bool
    offset: int


def header(name: bytes, size: int, *, is_directory: bool = False, is_executable: bool = False) -> bytes:
    """What stands before the bytes of a member. The same for the same arguments, whoever calls it and when."""
    full = name + b"/" if is_directory else name
    long_name = b""
    if len(full) > 100:
        data = full + b"\0"
        long_name = _block(b"././@LongLink", len(data), b"L", 0o600) + data + padding(len(data))
    mode = 0o700 if is_directory or is_executable else 0o600
    return long_name + _block(full[:100], size, b"5" if is_directory else b"0", mode)


def padding(size: int) -> bytes:
    """What fills up the last block of `size` bytes."""
    return b"\0" * (-size % BLOCK)


END = b"\0" * (2 * BLOCK)


def members(source: BinaryIO, path: str) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """The members of the archive that `source` holds, each with its bytes, which are passed over if nobody takes them.

    Raises CorruptRecord if it is no archive or was cut off, Denied for a member that is neither file nor directory.
    """
    reader = _Reader(source, path)
    long_name: bytes | None = None
    while (block := reader.block()) is not None:
        offset = reader.offset - BLOCK
        size, kind = _number(block[124:136], path, offset), block[156:157]
        if kind == b"L":
            if not 0 < size <= _LONGEST_NAME:
                raise _damaged(path, offset, f"a name of {size} bytes")
            long_name = b"".join(reader.data(size)).rstrip(b"\0")
            continue
        if kind not in (b"0", b"\0", b"5"):
            what = _KINDS.get(kind, f"a member of kind {kind!r}")
            raise Denied(f"{path}: {_shown(long_name or _name(block))} is {what}; only files and directories are taken")
        name = (_name(block) if long_name is None else long_name).rstrip(b"/")
        is_executable = bool(_number(block[100:108], path, offset) & 0o100)
        member = Member(name, 0 if kind == b"5" else size, kind == b"5", is_executable, offset)
        data = reader.data(member.size)
        yield member, data
        for _ in data:
            pass
        long_name = None


class _Reader:
    """Reads blocks and counts them."""

    def __init__(self, source: BinaryIO, path: str) -> None:
        self._source = source
        self._path = path
        self.offset = 0

    def block(self) -> bytes | None:
        """The next header; None at the end, which is a block of zeros."""
        block = self._read(BLOCK)
        if block == b"\0" * BLOCK:
            return None
        expected = _number(block[148:156], self._path, self.offset)
        if sum(block) - sum(block[148:156]) + 8 * 0x20 != expected or block[257:262] != b"ustar":
            raise _damaged(self._path, self.offset - BLOCK, "no header of a member stands there")
        return block

    def data(self, size: int) -> Iterator[bytes]:
        """`size` bytes in pieces; then the reader stands at the next header."""
        left = size
        while left:
            piece = self._read(min(left, _CHUNK))
            left -= len(piece)
            yield piece
        self._read(-size % BLOCK)

    def _read(self, size: int) -> bytes:
        pieces, left = [], size
        while left:
            piece = self._source.read(left)
            if not piece:
                raise _damaged(self._path, self.offset, "it ends there, before its end")
            pieces.append(piece)
            left -= len(piece)
            self.offset += len(piece)
        return b"".join(pieces)


def _block(name: bytes, size: int, kind: bytes, mode: int) -> bytes:
    # Sizes of 8 GiB and more have no octal form; GNU tar marks a binary one with the highest bit.
    length = b"%011o\0" % size if size <= _LARGEST_OCTAL else b"\x80" + size.to_bytes(11, "big")
    fields = [
        name.ljust(100, b"\0"), b"%07o\0" % mode, b"%07o\0" % 0, b"%07o\0" % 0, length, b"%011o\0" % 0, b" " * 8, kind,
        b"\0" * 100, _MAGIC,
    ]  # fmt: skip
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _number(field: bytes, path: str, offset: int) -> int:
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        if not digits:
            return 0
        raise _damaged(path, offset, "no header of a member stands there")
    return int(digits, 8)


def _name(block: bytes) -> bytes:
    name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    # The prefix is of POSIX ustar; GNU tar keeps times there.
    return prefix + b"/" + name if prefix and block[257:263] == b"ustar\0" else name


def _damaged(path: str, offset: int, what: str) -> CorruptRecord:
    return CorruptRecord(
        f"{path}: no whole archive: at byte {offset} {what}",
        path=path,
        offset=offset,
        hint="copy it again, or make it again where it came from: agentrun export --all --output FILE.tar",
    )


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "replace"))
