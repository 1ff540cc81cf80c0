"""`export`: a session or a run in a form for elsewhere, to standard output or into a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.cli.showing import warn
from agentrun.commands.exporting import exported
from agentrun.commands.names import Target, find
from agentrun.commands.outfile import new_file
from agentrun.errors import UsageError
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.render.exports import FORMS, form_of, writer_of
from agentrun.render.json import json_line
from agentrun.render.safe import shown

ARCHIVE = "archive"
_ARCHIVE_SUFFIX = ".tar"


class Wanted(NamedTuple):
    """The options of `export`."""

    form: str | None
    output: str | None
    overwrite: bool = False
    every: bool = False


class Written(NamedTuple):
    """What became of an export that went into a file."""

    bytes: int
    sha256: str


def export(options: Options, name: str | None, wanted: Wanted) -> int:
    """Writes the export piece by piece; with `--json` and a file, says where it went."""
    if wanted.overwrite and not wanted.output:
        raise UsageError("--overwrite is about the file of --output, and there is none")
    if wanted.every is (name is not None):
        raise UsageError("what is to be exported? A session, or --all", hint="the last one is: agentrun export @last")
    form = _form(options, wanted)
    if form == ARCHIVE:
        from agentrun.cli.archiving import archive

        return archive(options, name, wanted)
    if name is None:
        raise UsageError(f"--all takes whole sessions, as an archive; {form} is of one session")
    target = find(options.place().tree, name)
    damage: list[str] = []
    pieces = writer_of(form)(exported(target, damage))
    if wanted.output:
        written = into_file(pieces, wanted)
        say_where(options, _about(target, form), wanted.output, written)
    else:
        _to_standard_output(pieces, options)
    warn(options, damage)
    return exits.OK


def into_file(pieces: Iterable[bytes], wanted: Wanted) -> Written:
    """Writes the file of `--output`, whole or not at all."""
    assert wanted.output is not None
    digest, size = hashlib.sha256(), 0
    with new_file(wanted.output, overwrite=wanted.overwrite) as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return Written(size, digest.hexdigest())


def say_where(options: Options, about: Doc, path: str, written: Written) -> None:
    """Says what was written: for scripts as data, for a person as a remark."""
    if options.json:
        output.out_bytes(json_line({"exported": about | {"path": path} | written._asdict()}))
    elif output.is_terminal(sys.stderr):
        output.say(f"agentrun: {shown(path)}: {written.bytes:,} bytes\n")


def _about(target: Target, form: str) -> Doc:
    return {"sessionId": target.session.session_id, "runId": target.run_id, "format": form}


def _form(options: Options, wanted: Wanted) -> str:
    formats = [*FORMS, ARCHIVE]
    if wanted.form is not None:
        if wanted.form not in formats:
            raise UsageError(f"there is no format {wanted.form!r}", hint=f"the formats are: {', '.join(formats)}")
        return wanted.form
    if wanted.every or (wanted.output and wanted.output.lower().endswith(_ARCHIVE_SUFFIX)):
        return ARCHIVE
    return (form_of(wanted.output) if wanted.output else None) or ("json" if options.json else "markdown")


def _to_standard_output(pieces: Iterator[bytes], options: Options) -> None:
    if not output.is_terminal(sys.stdout):
        for piece in pieces:
            output.out_bytes(piece)
        return
    screen = output.screen_of(sys.stdout, options)
    for piece in pieces:
        output.out(shown(piece.decode("utf-8", "replace"), unicode=screen.unicode))
