"""Ends one process that is known by more than its number."""

from __future__ import annotations

import signal
import time

from agentrun.adapters.process.procfs import read_proc, send_signal

_PAUSE = 0.005


def end_named(pid: int, start: int, *, patience: float) -> bool:
    """Kills the process `pid` that started at `start` (clock ticks since boot), and waits until it is gone.

    Whether it is gone, which it may have been before: another process that got its number since is left alone. What
    the kernel does not let go within `patience` seconds (it hangs on a dead disk) is not.
    """
    deadline = time.monotonic() + patience
    found = read_proc(pid)
    while found is not None and found.start == start and found.alive:
        send_signal(found, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
        found = read_proc(pid)
    return True
