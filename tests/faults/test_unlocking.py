"""A lock that the file system does not give back when asked is let go all the same, and not with the process only."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def _why_not() -> str | None:
    """Why strace can refuse no call here; None if it can."""
    if shutil.which("strace") is None:
        return "there is no strace, which refuses a system call"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return f"strace cannot trace here: {tried.stderr.decode()[:200]}" if tried.returncode else None


WHY_NOT = _why_not()

HOLDS_ONCE = """
import sys
from agentrun.store.disk import Directory
from agentrun.store.locks import session_lock
directory = Directory.root(sys.argv[1])
for _ in range(2):
    with session_lock(directory):
        pass
    print("let go", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_lock_that_cannot_be_unlocked_is_let_go(tmp_path: Path) -> None:
    # The second flock(2) of a hold gives the lock back.
    argv = ["strace", "-qqq", "-o", str(tmp_path / "trace"), "-P", str(tmp_path / "s"), "-e", "trace=flock"]
    argv += ["-e", "inject=flock:error=ENOLCK:when=2", sys.executable, "-c", HOLDS_ONCE, str(tmp_path / "s")]
    (tmp_path / "s").mkdir()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        fd = os.open(tmp_path / "s", os.O_RDONLY)
        try:
            for _ in range(2):
                assert holder.stdout.readline() == "let go\n"
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_UN)
                holder.stdin.write("\n")
                holder.stdin.flush()
        finally:
            os.close(fd)
    assert holder.returncode == 0
    assert "(INJECTED)" in (tmp_path / "trace").read_text()
