"""What the libraries log: nothing of it is shown."""

from __future__ import annotations

import logging
import sys


def mute_libraries() -> None:
    """Keeps what libraries log off standard error, where it would stand between our lines.

    It holds what servers and agents have sent, as it came, and says in tracebacks what is recorded in words.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    # An object of theirs that could not be cleared away, for want of files or memory.
    sys.unraisablehook = lambda _: None
