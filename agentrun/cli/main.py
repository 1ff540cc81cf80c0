"""The `agentrun` command: loads what it needs, runs one command line, and leaves with its exit code."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


# New objects after which garbage is looked for.
_OBJECTS = 50_000
# 128 and the number of SIGINT, as shells have it; `cli.exit`, which knows, is only being loaded then.
_INTERRUPTED = 130
# As `errors.EXIT_CODES` has it.
_STORAGE = 11


def main() -> NoReturn:
    """Runs the command line of this process and exits."""
    # What is loaded stays loaded; to look through it for garbage every 700 objects takes a twentieth of the start.
    gc.set_threshold(_OBJECTS)
    # What nobody else may do is for each file to say. Taken from its owner, it would leave a tree that he cannot open.
    os.umask(os.umask(0o077) & 0o077)
    try:
        try:
            from agentrun.cli import output
            from agentrun.cli.command_line import run
        except KeyboardInterrupt:
            # There is nothing to wind down yet, and a traceback would tell nobody anything.
            os._exit(_INTERRUPTED)
        output.occupy_standard_descriptors()
        code = run(sys.argv[1:])
    except (OSError, MemoryError) as error:
        _last_words(error)
    _leave(code)


def _last_words(error: OSError | MemoryError) -> NoReturn:
    """Says what there is too little of, where there is too little to load what would say it, and exits."""
    number = getattr(error, "errno", None)
    what = os.strerror(number) if number else "Cannot allocate memory"
    try:
        os.write(2, f"agentrun: {what}: nothing was acknowledged, though it may be stored\n".encode())
    finally:
        os._exit(_STORAGE)


def _leave(code: int) -> NoReturn:
    """Exits at once: the interpreter's own farewell would complain about a standard output that is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)
