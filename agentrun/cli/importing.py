"""`import`: sessions from an archive, and conversations of other programs."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from agentrun import ids
from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.archiving import Unpacked, take_out
from agentrun.commands.foreign import Taken
from agentrun.commands.importing import ARCHIVE, FORMATS, check_beginning, import_foreign, kind_of
from agentrun.commands.outfile import no_directory, reading, spool
from agentrun.errors import NotFound, StorageFailed, UsageError
from agentrun.records.codec import Doc
from agentrun.render.json import json_line

_CHUNK = 1 << 20
# Bytes of standard input by which it can be told what it is: two of the longest lines.
_TOLD_BY = 128 << 20


def import_file(options: Options, path: str, form: str | None, new_id: str | None) -> int:
    """Takes sessions in and prints their ids; all of them, or none."""
    if form is not None and form not in FORMATS:
        raise UsageError(f"there is no format {form!r} to import", hint=f"the formats are: {', '.join(FORMATS)}")
    if new_id is not None:
        ids.checked_id(new_id, "session")
    tree = options.place().tree
    with _opened(path, form) as file:
        kind = form or kind_of(file, path)
        is_archive = kind == ARCHIVE
        taken = take_out(tree, file, path, new_id) if is_archive else import_foreign(tree, file, path, kind, new_id)
    for each in taken:
        _tell(options, path, kind, each, each.remarks if isinstance(each, Unpacked) else _remarks(each))
    return exits.OK


@contextmanager
def _opened(path: str, form: str | None) -> Iterator[BinaryIO]:
    """The file to read from its beginning. Standard input is kept in a file first: it may have to be read twice."""
    if path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed")
        with spool() as kept:
            is_told = False
            while piece := sys.stdin.buffer.read(_CHUNK):
                kept.write(piece)
                if not is_told and kept.tell() > _TOLD_BY:
                    # What has no end would fill the disk, and most of it can be told by its beginning.
                    is_told = True
                    check_beginning(kept, path, form)
                    kept.seek(0, os.SEEK_END)
            kept.seek(0)
            yield kept
        return
    try:
        # Looked at before it is opened: a FIFO would wait for somebody to write.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{path!r} is no regular file", hint="to read from a pipe: agentrun import -")
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except NotADirectoryError as error:
        in_the_way = no_directory(path) or path
        raise NotFound(f"{path}: {in_the_way} is no directory", hint=_where_to_look(path)) from error
    except FileNotFoundError as error:
        raise NotFound(f"{path}: {os.strerror(error.errno or 0)}", hint=_where_to_look(path)) from error
    except ValueError as error:
        raise UsageError(f"{path!r} cannot be a file: {error}") from error
    except OSError as error:
        raise StorageFailed(f"{path}: {os.strerror(error.errno or 0)}") from error
    # What the tree's own disk says is put into words where it is met.
    with file, reading(path):
        yield file


def _where_to_look(path: str) -> str:
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return f"see what is there: ls {shlex.quote(folder or '.')}"


def _tell(options: Options, path: str, kind: str, done: Unpacked | Taken, remarks: Sequence[str]) -> None:
    session, is_here_already = done.session, isinstance(done, Unpacked) and done.is_here_already
    if options.json:
        about: Doc = {"sessionId": session.session_id, "format": kind, "from": path, "title": session.title}
        counts: Doc = {"messages": done.messages, "runs": done.runs}
        passed_over = done.passed_over if isinstance(done, Taken) else {}
        more: Doc = {"passedOver": passed_over, "hereAlready": is_here_already, "remarks": list(remarks)}
        output.out_bytes(json_line({"imported": about | counts | more}))
        return
    output.out(f"{session.session_id}\n")
    if is_here_already:
        output.note(f"{session.session_id} is here already, byte for byte the same; it was left as it is")
    for remark in remarks:
        output.note(remark)


def _remarks(taken: Taken) -> list[str]:
    counted = ", ".join(f"{number:,} {kind}" for kind, number in taken.passed_over.items())
    return [f"{taken.session.session_id}: not taken in: {counted}"] if counted else []
