"""Commands that are real processes and yet start in milliseconds.

Most of the time of a short `agentrun` command goes into loading the interpreter and the package. A server that has
loaded both is started once for each process of the tests, and every command is a fork of it: a process with its own
pid, descriptors, environment, directory and end. What a fork cannot be is begun as a process of its own as ever: other
interpreter settings (locale, `PYTHON*`), limits.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import warm_spawn

import agentrun

SERVER = Path(__file__).with_name("warm_server.py")
LARGEST_REQUEST = 100_000
_OWN = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ} | {"LANG": "C.UTF-8"}


def popen(
    arguments: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: str | Path | None = None,
    start_new_session: bool = False,
    user: int | None = None,
    **kwargs: Any,
) -> subprocess.Popen[bytes] | Warm:
    """Starts `python -m agentrun` with `arguments`, as `subprocess.Popen` does, as a fork where it can be one."""
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if kwargs or not _can_be_warm(arguments, env):
        argv = [sys.executable, "-m", "agentrun", *arguments]
        if user is not None:
            kwargs |= {"user": user, "group": user, "extra_groups": []}
        return subprocess.Popen(argv, env=env, cwd=cwd, start_new_session=start_new_session, **streams, **kwargs)
    return Warm(arguments, env, cwd=cwd, own_session=start_new_session, user=user, **streams)


def run(
    arguments: Sequence[str], env: Mapping[str, str], *, text: bytes | None = None, timeout: float, **kwargs: Any
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` with both outputs captured; `text` goes to standard input."""
    given = {"stdin": subprocess.DEVNULL if text is None else subprocess.PIPE}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(arguments, env, **(given | pipes | kwargs)) as process:
        try:
            out, err = process.communicate(text, timeout)
        except BaseException:
            process.kill()
            raise
        assert process.returncode is not None
        return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)


def on_terminal(arguments: Sequence[str], env: Mapping[str, str], terminal: str) -> Warm | None:
    """Starts it as the leader of a session whose terminal is `terminal`; None if it cannot be a fork."""
    return Warm(arguments, env, own_session=True, terminal=terminal) if _can_be_warm(arguments, env) else None


def _can_be_warm(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    if not hasattr(os, "pidfd_open") or sum(map(len, [*arguments, *env, *env.values()])) > LARGEST_REQUEST:
        return False
    if any(signal.getsignal(each) is signal.SIG_IGN for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)):
        return False
    return warm_spawn.begins_alike(env, _OWN)


class _Server:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            room = "-" * warm_spawn.ROOM
            argv = [sys.executable, str(SERVER), str(theirs.fileno()), room]
            env, null = _OWN | {"ROOM": room}, subprocess.DEVNULL
            self.process = subprocess.Popen(argv, env=env, cwd="/", stdin=null, pass_fds=[theirs.fileno()])
        atexit.register(self.end)

    def end(self) -> None:
        """Lets the server go, and waits for it."""
        self.socket.close()
        self.process.wait()


_servers: dict[int, _Server] = {}
_one_at_a_time = threading.Lock()


def _server() -> _Server:
    pid = os.getpid()
    with _one_at_a_time:
        if pid not in _servers:
            _servers[pid] = _Server()
        return _servers[pid]


class Warm:
    """A command that was forked; the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: str | Path | None = None,
        own_session: bool = False,
        user: int | None = None,
        probe: str | None = None,
        terminal: str | None = None,
        watched_by: socket.socket | None = None,
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        # Threads of a test may ask for its end at the same time, and one reads it.
        self._one_reads = threading.Lock()
        mine: list[IO[bytes] | None] = []
        theirs: list[int] = []
        to_close: list[int] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            fd, stream = _stream(number, wanted, theirs, to_close)
            theirs.append(fd)
            mine.append(stream)
        self.stdin, self.stdout, self.stderr = mine
        self._told, told = os.pipe()
        request = {
            "program": str(Path(agentrun.__file__).with_name("__main__.py")),
            "arguments": list(arguments),
            "environment": dict(env),
            "cwd": str(cwd or os.getcwd()),
            "own_session": own_session,
            "user": user,
            "terminal": terminal,
            "probe": probe,
        }
        fds = [*theirs, told, *([watched_by.fileno()] if watched_by else [])]
        socket.send_fds(_server().socket, [json.dumps(request).encode()], fds)
        for fd in [*to_close, told]:
            os.close(fd)
        self.pid = int(self._line())

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            more = os.read(self._told, 1)
            assert more, "the server of warm commands is gone"
            line += more
        return line

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns its exit code, the negative number of the signal that ended it."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._told, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            with self._one_reads:
                if self.returncode is None:
                    self.returncode = int(self._line())
        return self.returncode

    def __del__(self) -> None:
        # Not as soon as it has ended: another thread may be waiting on that number, which would mean another file.
        with suppress(AttributeError):  # it could not even be begun
            os.close(self._told)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, text: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Writes `text` to it and reads what it prints until both outputs are closed and it has ended."""
        deadline = time.monotonic() + (timeout if timeout is not None else 1e9)
        heard = {stream: bytearray() for stream in (self.stdout, self.stderr) if stream is not None}
        rest = memoryview(text or b"")
        with selectors.DefaultSelector() as ready:
            for stream in heard:
                ready.register(stream, selectors.EVENT_READ)
            if self.stdin is not None:
                if rest:
                    os.set_blocking(self.stdin.fileno(), False)
                    ready.register(self.stdin, selectors.EVENT_WRITE)
                else:
                    self.stdin.close()
            while ready.get_map():
                found = ready.select(deadline - time.monotonic())
                if not found and time.monotonic() >= deadline:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                for key, _ in found:
                    rest = self._exchange(key.fileobj, ready, heard, rest)
        self.wait(max(0.0, deadline - time.monotonic()))
        return tuple(bytes(heard.get(each, b"")) for each in (self.stdout, self.stderr))  # type: ignore[return-value]

    def _exchange(self, stream: Any, ready: selectors.BaseSelector, heard: Any, rest: memoryview) -> memoryview:
        if stream is self.stdin:
            with suppress(BrokenPipeError):
                rest = rest[os.write(stream.fileno(), rest[: 1 << 16]) :]
                if rest:
                    return rest
        else:
            data = os.read(stream.fileno(), 1 << 16)
            heard[stream] += data
            if data:
                return rest
        ready.unregister(stream)
        stream.close()
        return rest

    def __enter__(self) -> Warm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _stream(
    number: int, wanted: int | IO[bytes] | None, theirs: Sequence[int], to_close: list[int]
) -> tuple[int, IO[bytes] | None]:
    """The descriptor that the command gets for standard stream `number`, and the test's end of it."""
    if wanted is None:
        return number, None
    if wanted == subprocess.PIPE:
        reading, writing = os.pipe()
        fd, own, mode = (reading, writing, "wb") if number == 0 else (writing, reading, "rb")
        to_close.append(fd)
        return fd, open(own, mode, buffering=0)
    if wanted == subprocess.DEVNULL:
        fd = os.open(os.devnull, os.O_RDWR)
        to_close.append(fd)
        return fd, None
    if wanted == subprocess.STDOUT:
        return theirs[1], None
    return (wanted if isinstance(wanted, int) else wanted.fileno()), None
