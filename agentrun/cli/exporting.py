"""`export`: a session or a run in a form for elsewhere, to standard output or into a file."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.clock import wall_seconds
from agentrun.commands.exporting import exported
from agentrun.commands.names import Target, find
from agentrun.commands.outfile import new_file
from agentrun.commands.place import Place
from agentrun.errors import UsageError
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.render.exports import FORMS, form_of, writer_of
from agentrun.render.json import json_line
from agentrun.render.safe import shown

# Forms that are made of something else than what the writers of `FORMS` take, each with the ending that asks for it.
ARCHIVE, PAGE = "archive", "html"
_SUFFIXES = {".tar": ARCHIVE, ".html": PAGE}


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
    place = options.place()
    target = find(place.tree, name)
    damage: list[str] = []
    pieces = _page(place, target, damage) if form == PAGE else writer_of(form)(exported(target, damage))
    if wanted.output:
        written = into_file(pieces, wanted)
        say_where(options, _about(target, form), wanted.output, written)
    else:
        _to_standard_output(pieces, options)
    output.warn(options, damage)
    return exits.OK


def _page(place: Place, target: Target, damage: list[str]) -> Iterator[bytes]:
    from agentrun.commands.whole import whole
    from agentrun.render.html import page

    told = whole(place, target, damage)
    return (text.encode("utf-8", "replace") for text in page(told.session, told.loose, told.runs, wall_seconds()))


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
        output.note(f"{path}: {written.bytes:,} bytes")


def _about(target: Target, form: str) -> Doc:
    return {"sessionId": target.session.session_id, "runId": target.run_id, "format": form}


def _form(options: Options, wanted: Wanted) -> str:
    formats = [*FORMS, PAGE, ARCHIVE]
    if wanted.form is not None:
        if wanted.form not in formats:
            raise UsageError(f"there is no format {wanted.form!r}", hint=f"the formats are: {', '.join(formats)}")
        return wanted.form
    if wanted.every:
        return ARCHIVE
    if wanted.output is None:
        return "json" if options.json else "markdown"
    suffix = os.path.splitext(wanted.output)[1].lower()
    return _SUFFIXES.get(suffix) or form_of(wanted.output) or "markdown"


def _to_standard_output(pieces: Iterator[bytes], options: Options) -> None:
    if not output.is_terminal(sys.stdout):
        for piece in pieces:
            output.out_bytes(piece)
        return
    screen = output.screen_of(sys.stdout, options)
    for piece in pieces:
        output.out(shown(piece.decode("utf-8", "replace"), unicode=screen.unicode))
