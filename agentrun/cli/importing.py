"""`import`: sessions from an archive."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agentrun import ids
from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.archiving import Unpacked, take_out
from agentrun.commands.outfile import spool
from agentrun.errors import NotFound, StorageFailed, UsageError
from agentrun.render.json import json_line

FORMATS = ("archive",)
_CHUNK = 1 << 20


def import_file(options: Options, path: str, form: str | None, new_id: str | None) -> int:
    """Takes sessions in and prints their ids; all of them, or none."""
    if form is not None and form not in FORMATS:
        raise UsageError(f"there is no format {form!r} to import", hint=f"the formats are: {', '.join(FORMATS)}")
    if new_id is not None:
        ids.checked_id(new_id, "session")
    with _opened(path) as file:
        _tell(options, path, take_out(options.place().tree, file, path, new_id))
    return exits.OK


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The file to read from its beginning. Standard input is kept in a file first: it may have to be read twice."""
    if path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed")
        with spool() as kept:
            while piece := sys.stdin.buffer.read(_CHUNK):
                kept.write(piece)
            kept.seek(0)
            yield kept
        return
    try:
        # Looked at before it is opened: a FIFO would wait for somebody to write.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{path!r} is no regular file", hint="to read from a pipe: agentrun import -")
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{path}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise UsageError(f"{path!r} cannot be a file: {error}") from error
    except OSError as error:
        raise StorageFailed(f"{path}: {os.strerror(error.errno or 0)}") from error
    with file:
        yield file


def _tell(options: Options, path: str, unpacked: list[Unpacked]) -> None:
    for each in unpacked:
        about = {"sessionId": each.session.session_id, "format": "archive", "from": path, "title": each.session.title}
        counts = {"messages": each.messages, "runs": each.runs}
        if options.json:
            output.out_bytes(json_line({"imported": about | counts | {"remarks": list(each.remarks)}}))
            continue
        output.out(f"{each.session.session_id}\n")
        for remark in each.remarks:
            output.note(remark)
