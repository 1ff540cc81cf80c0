"""`export --format archive`: whole sessions in one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.exporting import ARCHIVE, Wanted, into_file, say_where
from agentrun.cli.options import Options
from agentrun.commands.archiving import Packed, pack, pack_all
from agentrun.commands.names import find
from agentrun.commands.outfile import spool
from agentrun.commands.place import Place
from agentrun.errors import UsageError
from agentrun.records.codec import Doc
from agentrun.render.json import json_line

_CHUNK = 1 << 20


def archive(options: Options, name: str | None, wanted: Wanted) -> int:
    """Packs a session, or all; 7 if one of all could not be packed because a run of it is not over, 9 or 10 if it

    cannot be read.
    """
    if not wanted.output and output.is_terminal(sys.stdout):
        raise UsageError("an archive is not for a terminal", hint="write it into a file: --output FILE.tar")
    place = options.place()
    # Packed first, then passed on: while a session is locked, nobody may have to wait for whoever reads the archive.
    with spool() as file:
        packed = _packed(place, name, file)
        file.seek(0)
        pieces = iter(lambda: file.read(_CHUNK), b"")
        if wanted.output:
            only = packed.session_ids[0] if name is not None else None
            about: Doc = {"sessionId": only, "runId": None, "format": ARCHIVE}
            about |= {"sessionIds": list(packed.session_ids), "leftOut": list(packed.left_out)}
            say_where(options, about, wanted.output, into_file(pieces, wanted))
        else:
            _pass_on(pieces)
    return _remarks(options, packed)


def _packed(place: Place, name: str | None, spool: BinaryIO) -> Packed:
    if name is None:
        return pack_all(place.tree, spool)
    target = find(place.tree, name)
    if target.run_id is not None:
        raise UsageError(f"{name} names a run; an archive holds whole sessions")
    return pack(place.tree, target.session, spool)


def _pass_on(pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        output.out_bytes(piece)


def _remarks(options: Options, packed: Packed) -> int:
    said = [f"left out, for it is neither file nor directory of yours: {path}" for path in packed.left_out]
    said += [f"left out: {error.message}" for error in packed.refused]
    for each in said:
        if options.json:
            output.say(json_line({"warning": {"code": "left_out", "message": each}}).decode("utf-8"))
        else:
            output.note(each)
    return max((error.exit_code for error in packed.refused), default=exits.OK)
