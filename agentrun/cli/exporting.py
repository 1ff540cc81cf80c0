"""`export`: a session or a run in a form for elsewhere, to standard output or into a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.cli.showing import warn
from agentrun.commands.exporting import exported
from agentrun.commands.names import Target, find
from agentrun.commands.outfile import new_file
from agentrun.errors import UsageError
from agentrun.records.codec import Doc
from agentrun.render.exports import FORMS, form_of, writer_of
from agentrun.render.json import json_line
from agentrun.render.safe import shown


class Wanted(NamedTuple):
    """The options of `export`."""

    form: str | None
    output: str | None
    overwrite: bool = False


class Written(NamedTuple):
    """What became of an export that went into a file."""

    bytes: int
    sha256: str


def export(options: Options, name: str, wanted: Wanted) -> int:
    """Writes the export piece by piece; with `--json` and a file, says where it went."""
    if wanted.overwrite and not wanted.output:
        raise UsageError("--overwrite is about the file of --output, and there is none")
    form = _form(options, wanted)
    target = find(options.place().tree, name)
    damage: list[str] = []
    pieces = writer_of(form)(exported(target, damage))
    if wanted.output:
        written = _into_file(pieces, wanted.output, overwrite=wanted.overwrite)
        _say_where(options, target, form, wanted.output, written)
    else:
        _to_standard_output(pieces, options)
    warn(options, damage)
    return exits.OK


def _form(options: Options, wanted: Wanted) -> str:
    if wanted.form is None:
        return (form_of(wanted.output) if wanted.output else None) or ("json" if options.json else "markdown")
    if wanted.form not in FORMS:
        raise UsageError(f"there is no format {wanted.form!r}", hint=f"the formats are: {', '.join(FORMS)}")
    return wanted.form


def _into_file(pieces: Iterator[bytes], path: str, *, overwrite: bool) -> Written:
    digest, size = hashlib.sha256(), 0
    with new_file(path, overwrite=overwrite) as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return Written(size, digest.hexdigest())


def _to_standard_output(pieces: Iterator[bytes], options: Options) -> None:
    if not output.is_terminal(sys.stdout):
        for piece in pieces:
            output.out_bytes(piece)
        return
    screen = output.screen_of(sys.stdout, options)
    for piece in pieces:
        output.out(shown(piece.decode("utf-8", "replace"), unicode=screen.unicode))


def _say_where(options: Options, target: Target, form: str, path: str, written: Written) -> None:
    if options.json:
        about: Doc = {"sessionId": target.session.session_id, "runId": target.run_id, "format": form, "path": path}
        output.out_bytes(json_line({"exported": about | written._asdict()}))
    elif output.is_terminal(sys.stderr):
        output.say(f"agentrun: {shown(path)}: {written.bytes:,} bytes\n")
