"""The program that serves the embedded model: `python -m agentrun.adapters.models.embedded_server FILE PARENT`.

It reads the key that it is to ask for from its standard input, says its address on descriptor 3 once the model is
loaded, and serves until it is told to end, or until PARENT, the process that it serves, is gone in whatever way.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from contextlib import suppress

CONTEXT_TOKENS = 8192
_LINE_FD = 3
_PARENT_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(path: str, parent: int) -> None:
    """Serves the model in the file `path` on a port of its own, to this machine and to whoever has the key alone."""
    key = sys.stdin.readline().strip()
    end_with(parent)
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = CONTEXT_TOKENS
    # One request at a time: a run asks for no more, and the whole context is for it.
    params.n_parallel = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    os.write(_LINE_FD, f"{server.listening_address}\n".encode())
    os.close(_LINE_FD)
    while os.getppid() == parent:
        time.sleep(_PARENT_LOOK_SECONDS)
    os._exit(0)


def end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, where it can; it may have died already."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
