"""What the other tests of this folder stand on: a call is refused, is the last one, or is the last one for now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import system_calls
from rig import is_stopped, until

WHY_NOT = system_calls.why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]

# Beside the tree nothing counts, nor does what changes nothing, nor what another process does.
WATCHED = """
import errno, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
import system_calls
os.chdir(sys.argv[3])
system_calls.be_watched(socket.socket(fileno=int(sys.argv[2])))
try:
    open("beside", "w").close()
    os.mkdir("root")
    try:
        os.unlink("root/nothing")
    except FileNotFoundError:
        pass
    os.close(os.open("root", os.O_RDONLY))
    subprocess.run(["sh", "-c", "echo more >root/other"], check=True)
    file = os.open("root/file", os.O_WRONLY | os.O_CREAT)
    for word in (b"first", b"second"):
        os.write(file, word)
    os.unlink("root/file")
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("done")
"""


@contextmanager
def _watched(watch: system_calls.Watch, base: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [
        sys.executable,
        "-c",
        WATCHED,
        str(Path(system_calls.__file__).parent),
        str(watch.theirs.fileno()),
        str(base),
    ]
    fds = [watch.theirs.fileno()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=fds, text=True) as process:
        try:
            watch.begin(process.pid)
            yield process
        finally:
            process.kill()


def test_what_changes_the_tree_is_told_in_order(tmp_path: Path) -> None:
    watch = system_calls.Watch(tmp_path / "root", tells=True)
    with _watched(watch, tmp_path) as process:
        assert process.communicate(timeout=30)[0] == "done\n"
    root = f"{tmp_path}/root"
    names = {"mkdirat": "mkdir", "unlinkat": "unlink"}  # where there are both, the C library takes the old one
    assert [(names.get(call.name, call.name), call.number) for call in watch.seen] == [
        ("mkdir", 1), ("openat", 1), ("write", 1), ("write", 2), ("unlink", 1)
    ]  # fmt: skip
    assert f"write(<{root}/file>, 'second')" in [call.text for call in watch.seen]
    assert (tmp_path / "root/other").read_text() == "more\n"
    assert not watch.has_come.is_set()


def test_a_call_that_is_refused_has_not_happened(tmp_path: Path) -> None:
    watch = system_calls.Watch(tmp_path / "root", ("write", 2), "error=EDQUOT")
    with _watched(watch, tmp_path) as process:
        assert process.communicate(timeout=30)[0] == "EDQUOT\n"
    assert watch.has_come.is_set()
    assert (tmp_path / "root/file").read_text() == "first"


def test_a_call_that_kills_has_not_happened(tmp_path: Path) -> None:
    watch = system_calls.Watch(tmp_path / "root", ("write", 2), "signal=KILL")
    with _watched(watch, tmp_path) as process:
        assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "root/file").read_text() == "first"


def test_who_is_stopped_stands_still_behind_the_call(tmp_path: Path) -> None:
    watch = system_calls.Watch(tmp_path / "root", ("write", 2), "signal=STOP")
    with _watched(watch, tmp_path) as process:
        until(lambda: is_stopped(process.pid), "it stands still")
        assert (tmp_path / "root/file").read_text() == "firstsecond"
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate(timeout=30)[0] == "done\n"
    assert not (tmp_path / "root/file").exists()
