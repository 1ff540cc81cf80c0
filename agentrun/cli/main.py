"""The `agentrun` command: loads what it needs, runs one command line, and leaves with its exit code."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line of this process and exits."""
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heeded:
        # As long as things are being loaded there is nothing to wind down, and a traceback would tell nobody anything.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agentrun.cli import output
    from agentrun.cli.command_line import run

    if is_heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    output.occupy_standard_descriptors()
    _leave(run(sys.argv[1:]))


def _leave(code: int) -> NoReturn:
    """Exits at once: the interpreter's own farewell would complain about a standard output that is gone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)
