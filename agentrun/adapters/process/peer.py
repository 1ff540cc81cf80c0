"""Starts a program that is talked to over its stdin and stdout for as long as it is needed, and ends it after that.

Whatever happens inside `open_peer`, nothing of the program's tree is alive when it is left: its input is closed, which
asks it to go; then it is ended like a tool. What it says on stderr is read all the time, so that it never waits for us,
and its end is kept to say why it died.
"""

import errno
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from io import BytesIO

import anyio
import anyio.lowlevel

from agentrun.adapters.process.marks import mark_of
from agentrun.adapters.process.orphans import own_children, settle
from agentrun.adapters.process.output import Tail
from agentrun.adapters.process.procfs import open_pidfd
from agentrun.adapters.process.run import LINGER_SECONDS, Outcome
from agentrun.adapters.process.starting import Started, start
from agentrun.adapters.process.tree import KILL_SECONDS, Survivor, Tree, belongs, end_tree

CLOSING_SECONDS = 1.0
"""How long a program may take to go by itself once its input is closed."""

_READ_BYTES = 64 * 1024
_POLL_SECONDS = 0.02  # only where a pidfd is not to be had


@asynccontextmanager
async def open_peer(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    marker: Mapping[str, str],
    grace: float,
    kill: float = KILL_SECONDS,
) -> "AsyncIterator[Peer]":
    """A program that is running as long as the block is. Raises `CannotStart`.

    `marker`, `grace` and `kill` are as in `run_process`. An exception of the block goes on when the tree has ended.
    """
    mark = mark_of(marker)
    peer = Peer(start(argv, cwd, env))
    tree = Tree(partial(belongs, peer.pid, mark), frozenset, group=peer.pid, kill=kill)
    survivors: list[Survivor] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(peer.drain)
            group.start_soon(peer.watch)
            try:
                yield peer
            finally:
                with anyio.CancelScope(shield=True):
                    peer.close_input()
                    with anyio.move_on_after(CLOSING_SECONDS):
                        await peer.exited.wait()
                    survivors = await end_tree(tree, grace, anyio.sleep)
                group.cancel_scope.cancel()
    finally:
        peer.collect(survivors)
        settle(mark)


class Peer:
    """The program. One task may receive and any number may send.

    `exited` is set when its process has ended, `ended` when its output is over as well.
    """

    def __init__(self, started: Started) -> None:
        process = started.process
        started.lines.close()
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.pid = process.pid
        self.exited = anyio.Event()
        self.ended = anyio.Event()
        self._process = process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr
        self._tail = Tail()
        self._sending = anyio.Lock()
        self._receiving: anyio.CancelScope | None = None
        self._pidfd = open_pidfd(self.pid)
        self._status: os.waitid_result | None = None
        self._survivors: tuple[Survivor, ...] = ()
        for pipe in (self._input, self._output, self._errors):
            os.set_blocking(pipe.fileno(), False)

    async def send(self, content: bytes) -> None:
        """Writes all of it. Raises BrokenPipeError when the program reads no more."""
        async with self._sending:
            rest = memoryview(content)
            while rest:
                if self._input.closed:
                    raise BrokenPipeError(errno.EPIPE, "its input is closed")
                try:
                    rest = rest[os.write(self._input.fileno(), rest[:_READ_BYTES]) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._input)

    async def receive(self) -> bytes:
        """What it has said next on stdout; nothing when it has ended, whoever still holds its stdout."""
        # One that talks without a pause must not keep this process from all else that it has to do.
        await anyio.lowlevel.checkpoint()
        while True:
            with suppress(BlockingIOError):
                return os.read(self._output.fileno(), _READ_BYTES)
            if self.ended.is_set():
                return b""
            with anyio.CancelScope() as self._receiving:
                await anyio.wait_readable(self._output)

    def outcome(self) -> Outcome:
        """What is known of its end; as long as it runs, neither exit code nor signal."""
        if not self.ended.is_set():
            self._note_end()
        exit_code = signal = None
        if self._status is not None:
            exited = self._status.si_code == os.CLD_EXITED
            exit_code, signal = (self._status.si_status, None) if exited else (None, self._status.si_status)
        return Outcome(
            exit_code=exit_code,
            signal=signal,
            stdout=BytesIO(),
            stdout_kept=0,
            stdout_total=0,
            stderr=self._tail.content(),
            stderr_total=self._tail.total,
            output_open=False,
            timed_out=False,
            survivors=self._survivors,
        )

    # What `open_peer` calls.

    async def drain(self) -> None:
        """Reads stderr to its end."""
        while True:
            try:
                chunk = os.read(self._errors.fileno(), _READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._errors)
                continue
            if not chunk:
                return
            self._tail.write(chunk)

    async def watch(self) -> None:
        """Notices the end of the program itself. What it has said by then is still received."""
        while not self._note_end():
            if self._pidfd is None:
                await anyio.sleep(_POLL_SECONDS)
            else:
                await anyio.wait_readable(self._pidfd)
        self.exited.set()
        await anyio.sleep(LINGER_SECONDS)
        self.ended.set()
        if self._receiving:
            self._receiving.cancel()

    def close_input(self) -> None:
        """Tells the program that nothing more will be said."""
        self._input.close()

    def collect(self, survivors: list[Survivor]) -> None:
        """Lets go of the program, which has ended or cannot be ended."""
        self._note_end()
        self._survivors = tuple(survivors)
        if self._process.poll() is not None:
            own_children.discard(self.pid)
        for pipe in (self._input, self._output, self._errors):
            pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _note_end(self) -> bool:
        # The status is left with the kernel until `collect`, as in `run`.
        if self._status is None:
            try:
                self._status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # SIGCHLD is ignored: the kernel has thrown the status away
                return True
        return self._status is not None
