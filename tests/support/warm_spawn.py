"""Detached executors as forks too: the server of warm commands makes them, where a command would begin an interpreter.

The command asks over a socket of the server's, with the lock of the run, and gets the pid. `/proc` tells of the fork
what it would tell of the interpreter: that is how executors are found.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import runpy
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrun.commands.execution import DETACHED, LIVENESS_FD

# What the server's own command line and environment are stretched to, so that those of a fork have room there.
ROOM = 32_000
# What the interpreter reads once, when it starts; PYTHONPATH is looked at for itself.
READ_AT_START = ("LANG", "LC_", "PYTHON", "LD_", "TZ", "_")
LOADED = {"agentrun", "anyio", "typer", "sitecustomize", "usercustomize"}
_PEER = struct.Struct("3i")
_new_interpreter = os.posix_spawn


def begins_alike(env: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether an interpreter that starts with `env` is one that started with `own` and finds more packages."""
    ours, theirs = ({*each.get("PYTHONPATH", "").split(os.pathsep), ""} for each in (own, env))
    return _read_at_start(env) == _read_at_start(own) and ours <= theirs and all(map(_only_adds, theirs - ours))


def _only_adds(path: str) -> bool:
    """Whether nothing there is in the place of what is loaded already, or acts as soon as an interpreter starts."""
    names = {entry.partition(".")[0] for entry in os.listdir(path)} if os.path.isdir(path) else set()
    return names.isdisjoint(sys.stdlib_module_names | LOADED)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    apart = ("PYTHONPATH", "_")
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name not in apart}


def listen() -> socket.socket:
    """Where the commands of this server ask. The name is of the network namespace and goes with the socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(_name(os.getpid()))
    listener.listen(64)
    return listener


def _name(server: int) -> str:
    return f"\0agentrun-warm-{server}"


def ask_when_detaching(server: int, began_with: Mapping[str, str]) -> None:
    """From now on detached executors of this process are forks of `server`, whose environment was `began_with`."""

    def spawn(path: str, argv: Sequence[str], env: Mapping[str, str], **options: Any) -> int:
        if tuple(argv[1:4]) != ("-P", "-m", DETACHED) or not begins_alike(env, began_with):
            return _new_interpreter(path, argv, env, **options)
        request = {"argv": list(argv), "environment": dict(env), "cwd": os.getcwd(), "umask": _umask()}
        text = json.dumps(request).encode()
        if len(text) > ROOM:
            return _new_interpreter(path, argv, env, **options)
        (lock,) = [action[1] for action in options["file_actions"] if action[0] == os.POSIX_SPAWN_DUP2]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
            way.connect(_name(server))
            socket.send_fds(way, [text], [lock])
            return int(way.recv(32))

    os.posix_spawn = spawn


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before


def fork(way: socket.socket) -> int | None:
    """The pid of the executor that was forked for one command; None if the command has died over its question."""
    with way:
        packet, fds, _, _ = socket.recv_fds(way, ROOM, 1)
        if not packet:
            return None
        pid = os.fork()
        if pid == 0:
            _become(json.loads(packet), fds[0], way)
        os.close(fds[0])
        return pid


def _user(way: socket.socket) -> tuple[int, int]:
    """The user and group of whoever asks."""
    _, uid, gid = _PEER.unpack(way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return uid, gid


def _become(request: dict[str, Any], lock: int, way: socket.socket) -> None:
    """Makes this process what the interpreter would be, tells the command that it is, and executes the run."""
    code, user = 1, _user(way)
    try:
        # Both may have come on one of the numbers that are filled now.
        lock, answer = (fcntl.fcntl(fd, fcntl.F_DUPFD, LIVENESS_FD + 1) for fd in (lock, way.fileno()))
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.dup2(lock, LIVENESS_FD)
        os.setsid()
        show_as(request["argv"], request["environment"])
        _answer(answer)
        os.closerange(LIVENESS_FD + 1, 1024)
        if user != (os.geteuid(), os.getegid()):
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
        os.umask(request["umask"])
        os.chdir(request["cwd"])
        adopt_environment(request["environment"])
        sys.argv = [DETACHED, *request["argv"][4:]]
        runpy.run_module(DETACHED, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os._exit(code)


def _answer(way: int) -> None:
    """Tells the command its pid, once `/proc` shows what it is: posix_spawn(3) returns when the program is there."""
    with suppress(BrokenPipeError, ConnectionResetError):  # it has died over its question
        os.write(way, str(os.getpid()).encode())


def adopt_environment(environment: Mapping[str, str]) -> None:
    """Takes over the environment, and looks where it says for packages that only this process is to find."""
    os.environ.clear()
    os.environ.update(environment)
    brought = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    sys.path[:0] = brought


def show_as(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Lets `/proc` show that command line and environment, in the places where the kernel put the server's own."""
    # Of proc(5), counted behind the name: arg_start, arg_end, env_start, env_end.
    fields = [int(each) for each in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    shown = (argv, [f"{name}={value}" for name, value in environment.items()])
    for (start, end), words in zip((fields[:2], fields[2:]), shown, strict=True):
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        assert len(text) < end - start, "there is no room for the command line or the environment"
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
