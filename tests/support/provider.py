"""Starts a provider that is played by a server of others (aimock, from npm), on a port that is its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence

# For Node to start on a machine that is slow and busy.
PATIENCE = 120.0


def start(argv: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The server, listening, and its port: a free one, which it has to be told.

    Somebody else may take that before the server does, which ends then; so it is begun again on another.
    """
    environment = os.environ | {"AIMOCK_STRICT_TURN_INDEX": "1"}
    deadline = time.monotonic() + PATIENCE
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        null = subprocess.DEVNULL
        process = subprocess.Popen([*argv, "-p", str(port)], env=environment, stdout=null, stderr=null)
        while process.poll() is None:
            if _listens(port):
                return process, port
            if time.monotonic() >= deadline:
                process.kill()
                process.wait()
                break
            time.sleep(0.05)
        assert time.monotonic() < deadline, "the provider does not listen"


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
