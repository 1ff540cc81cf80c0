"""The other half of `warm`: a process that has loaded agentrun, and becomes a command again and again by forking.

It reads requests from the socket whose descriptor it is told, one packet each, with four descriptors: the standard
ones of the command and a pipe, into which go the pid of the command and, once it has ended, how; and a fifth one where
somebody is to answer its system calls (`system_calls`). It ends with the socket. The commands in turn ask it for the
executors that they leave behind (`warm_spawn`).
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import system_calls
import warm_spawn

from agentrun import named

LARGEST_REQUEST = 200_000
# What the interpreter began with, without what makes room.
BEGAN_WITH = {name: value for name, value in os.environ.items() if name != "ROOM"}
# What commands load where they need it: here once for all of them. What belongs to extras is not.
LOADED_ON_THE_WAY = (
    "agentrun.cli", "agentrun.commands", "agentrun.executor", "agentrun.lifecycle", "agentrun.render",
    "agentrun.store", "agentrun.agent", "agentrun.adapters.process",
)  # fmt: skip
OTHERS = (
    "anyio._backends._asyncio", "agentrun.adapters.models.scripted", "agentrun.adapters.registry",
    "agentrun.adapters.checks", "agentrun.adapters.tools.command", "agentrun.adapters.tools.delegate", "tomllib",
    "typer._click.decorators", "hashlib", "subprocess", "encodings.ascii", "encodings.idna", "encodings.latin_1",
)  # fmt: skip


class Server:
    """Forks what it is asked for, until nobody is at the other end of the socket."""

    def __init__(self, requests: socket.socket) -> None:
        self._is_asked = True
        # No epoll: a fork would share it.
        self._ready = selectors.PollSelector()
        self._ready.register(requests, selectors.EVENT_READ, self._begin_command)
        self._ready.register(warm_spawn.listen(), selectors.EVENT_READ, self._accept)

    def serve(self) -> None:
        while self._is_asked:
            for key, _ in self._ready.select():
                key.data(key.fileobj)

    def _begin_command(self, requests: socket.socket) -> None:
        packet, fds, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 5)
        if not packet:
            self._is_asked = False
            return
        pid = os.fork()
        if pid == 0:
            _become(json.loads(packet), fds)
        told = fds.pop(3)
        for each in fds:
            os.close(each)
        _tell(told, f"{pid}\n")
        self._wait_for_the_end(pid, told)

    def _accept(self, listener: socket.socket) -> None:
        """A command wants an executor; it may be stopped, or die, before it says which."""
        way, _ = listener.accept()
        self._ready.register(way, selectors.EVENT_READ, self._begin_executor)

    def _begin_executor(self, way: socket.socket) -> None:
        self._ready.unregister(way)
        pid = warm_spawn.fork(way)
        if pid is not None:
            self._wait_for_the_end(pid, None)

    def _wait_for_the_end(self, pid: int, told: int | None) -> None:
        def ended(pidfd: int) -> None:
            self._ready.unregister(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            if told is not None:
                _tell(told, f"{os.waitstatus_to_exitcode(status)}\n")
                os.close(told)

        self._ready.register(os.pidfd_open(pid), selectors.EVENT_READ, ended)


def _load() -> None:
    for name in LOADED_ON_THE_WAY:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            if not module.name.endswith(("__main__", ".detached")):
                importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)
    _know_the_parameters()
    _know_the_fields(named._Fields)
    gc.collect()
    gc.freeze()


def _know_the_parameters() -> None:
    """Finds out once what typer finds out in each command by evaluating annotations: the parameters of its function."""
    from typer import main

    from agentrun.cli.chosen import command_for
    from agentrun.cli.words import COMMANDS

    main.get_params_from_function = functools.cache(main.get_params_from_function)  # type: ignore[attr-defined]
    for name in COMMANDS:
        command_for([name])


def _know_the_fields(tuples: type) -> None:
    """Makes an object of each named tuple: with the first one a class gets what sorts arguments into fields."""
    for each in tuples.__subclasses__():
        if each.__new__ is tuples.__new__:
            each(*each._fields)
        _know_the_fields(each)


def _tell(fd: int, text: str) -> None:
    with suppress(BrokenPipeError):
        os.write(fd, text.encode())


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Makes this process what `python -m agentrun` is after its start, and runs its command line."""
    try:
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
        watcher = fds[4] if len(fds) > 4 else 2
        os.closerange(3, watcher)
        os.closerange(watcher + 1, 1024)
        if request["own_session"]:
            os.setsid()
        if request["terminal"] is not None:
            # The first terminal that the leader of a session opens is the one that it gets its signals from.
            terminal = os.open(request["terminal"], os.O_RDWR)
            for number in range(3):
                os.dup2(terminal, number)
            os.close(terminal)
        if request["user"] is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        os.chdir(request["cwd"])
        warm_spawn.adopt_environment(request["environment"])
        warm_spawn.ask_when_detaching(os.getppid(), BEGAN_WITH)
        # The streams in which the interpreter began have the settings of the descriptors that they had then.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.argv = [request["program"], *request["arguments"]]
        if request["probe"]:
            _wait_for(request["probe"])
        if len(fds) > 4:
            with socket.socket(fileno=watcher) as way:
                system_calls.be_watched(way)
        from agentrun.cli.main import main as begin

        begin()
    except BaseException:  # noqa: BLE001 - this process must never go on as a server
        traceback.print_exc()
    finally:
        os._exit(1)


def _wait_for(probe: str) -> None:
    """Returns once the file `probe` is there."""
    while not os.path.exists(probe):
        time.sleep(0.001)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _load()
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
