"""Standard output and standard error, as bytes: any locale, any text, and a reader that may go away."""

from __future__ import annotations

import errno
import os
import stat
import sys

from agentrun.cli.options import Options, is_dumb, wants_colour
from agentrun.errors import StorageFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from agentrun.records.codec import Doc
    from agentrun.render.theme import Screen

# The columns of lists where nothing says how wide they may be.
PLAIN_WIDTH = 100


class ReaderGone(Exception):
    """Nobody reads standard output any more."""


def out(text: str) -> None:
    """Prints data. Raises ReaderGone, or StorageFailed if standard output cannot be written."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogateescape" if _is_escaped(text) else "replace")
    out_bytes(data)


def out_json(doc: Doc) -> None:
    """As `out`, a document as a line of JSON."""
    from agentrun.render.json import json_line

    out_bytes(json_line(doc))


def out_bytes(data: bytes) -> None:
    """As `out`, for what is encoded already."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _failed(1, error) from error
    write(1, data)


def write(fd: int, data: bytes) -> None:
    """Writes all of `data` to standard output (1) or standard error (2). Raises ReaderGone, StorageFailed."""
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        raise _failed(fd, error) from error


def is_left(fd: int) -> bool:
    """Whether the reader of the pipe or terminal behind `fd` is gone for good."""
    import select

    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))


def _failed(fd: int, error: OSError) -> ReaderGone | StorageFailed:
    # EIO: a terminal that was closed.
    if isinstance(error, BrokenPipeError) or (error.errno == errno.EIO and stat.S_ISCHR(os.fstat(fd).st_mode)):
        return ReaderGone()
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    what = "standard output" if fd == 1 else "standard error"
    return StorageFailed(f"{what}: {os.strerror(error.errno or 0)} ({name})")


def say(text: str) -> None:
    """Prints what is not data, on standard error; whether anyone reads it changes nothing."""
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        return


def say_in_passing(text: str) -> None:
    """As `say`, for an executor: nothing of it is said where whoever reads has stopped reading, and it goes on."""
    import select

    poll = select.poll()
    poll.register(2, select.POLLOUT)
    # A pipe is ready as long as it takes 4,096 bytes at once (pipe(7)); nothing that is said in passing is longer.
    if poll.poll(0):
        say(text)


def note(text: str, *hints: str) -> None:
    """Says on standard error what a person should know, and below it what to type next.

    File names, ids and words of the record may stand in it as they are: here they are made safe for a terminal.
    """
    from agentrun.render.safe import shown_line

    unicode = screen_of(sys.stderr, Options()).unicode
    first, *others = (shown_line(each, unicode=unicode) for each in (text, *hints))
    say("".join([f"agentrun: {first}\n", *(f"  {each}\n" for each in others)]))


def warn(options: Options, said: Iterable[str]) -> None:
    """Says of each of these texts that it is about something damaged, on standard error."""
    for each in said:
        if options.json:
            from agentrun.render.json import json_line

            warning: Doc = {"warning": {"code": "damaged", "message": each}}
            say(json_line(warning).decode("utf-8"))
        else:
            note(each)


def screen_of(stream: TextIO | None, options: Options) -> Screen:
    """What the stream can show. A stream that is closed can show nothing."""
    from agentrun.render.theme import Screen

    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    width = size_of(stream)[0] if stream is not None and is_terminal(stream) else PLAIN_WIDTH
    return Screen(
        width=width,
        colour=is_terminal(stream) and wants_colour(options),
        unicode=encoding == "utf8",
        interactive=is_terminal(stream) and not is_dumb(),
    )


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads `stream`; None is a stream that was closed when the process began."""
    return stream is not None and not stream.closed and stream.isatty()


# The descriptor of a tool for lines that are passed on at once.
LINE_FD = 3


def reserve_line_descriptor() -> None:
    """Puts the null device under the number that a tool's descriptor for lines has, if that is free.

    A file of the tree would get it otherwise. `adapters.process.starting` needs the number to be free, to start a tool
    without a copy of this process, which takes five times as long.
    """
    fd = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if fd != LINE_FD:
        os.close(fd)


def occupy_standard_descriptors() -> None:
    """Puts the null device where standard input, output or error are closed.

    A file of the tree would get that number otherwise, and a message for the user would be written into it.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    # Python has no stream where there was no descriptor. Standard input stays none: there is nothing to read.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process lasts
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise


def size_of(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal behind `stream` now."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return PLAIN_WIDTH, 24
    return found.columns or PLAIN_WIDTH, found.lines or 24


def _is_escaped(text: str) -> bool:
    """Whether the lone surrogates in `text`, if any, stand for bytes of an argument that was not UTF-8 (PEP 383)."""
    return not any(0xD800 <= ord(character) < 0xDC80 or 0xDCFF < ord(character) <= 0xDFFF for character in text)
