"""Starts a tool and follows it to its end.

`run_process` returns when the tool's own process has ended, whoever still holds the pipes, and its memory
does not grow with the output. After a time-out, a cancellation of the surrounding scope or an error in
`on_line`, nothing of the tool's tree is alive, or what is alive is named; only then does the call return
or the exception go on. If `on_started` was not called by then, nothing was started. If it was, the
outcome is given out exactly once: returned, or handed to `on_interrupted` when an exception goes on.

After a normal end nothing is ended: a daemon that the tool left is found by `end_marked`.
"""

import os
import selectors
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, BinaryIO, NamedTuple

import anyio
import anyio.lowlevel

from agentrun.adapters.process.marks import Mark, mark_of
from agentrun.adapters.process.orphans import own_children, settle
from agentrun.adapters.process.output import Lines, Spool, Tail
from agentrun.adapters.process.procfs import open_pidfd
from agentrun.adapters.process.starting import Started, start
from agentrun.adapters.process.tree import KILL_SECONDS, Survivor, Tree, belongs, end_tree
from agentrun.agent.protocols import never

LINGER_SECONDS = 0.1
"""How long a pipe that is still open is read after the tool's end: a helper such as bash's
`> >(tee log)` writes its last lines a moment after the shell that started it has gone."""

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024  # /proc/sys/fs/pipe-max-size: one read of this size empties a usual pipe
_HELD_CHUNKS = 64  # of output that waits while a tree is ended; each is as long as one read at the most
_POLL_SECONDS = 0.02  # only where a pidfd is not to be had


class Outcome(NamedTuple):
    """What is known about a process that was started. Whoever gets it closes `stdout`."""

    exit_code: int | None
    """None: ended by `signal`. Both None: it lives on as a survivor, or its status was lost."""
    signal: int | None
    stdout: BinaryIO
    """At its start; holds the first `stdout_kept` bytes."""
    stdout_kept: int
    stdout_total: int
    stderr: bytes
    """The last `STDERR_TAIL` bytes of `stderr_total`."""
    stderr_total: int
    output_open: bool
    """Another process still held stdout, stderr or `LINE_FD` when reading stopped."""
    timed_out: bool
    survivors: tuple[Survivor, ...]
    by_itself: bool = False
    """It was stopped when it had ended already: how it ended is its own word."""

    @property
    def stdout_cut(self) -> bool:
        return self.stdout_kept < self.stdout_total


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    marker: Mapping[str, str],
    timeout: float | None,  # noqa: ASYNC109  its end takes a grace period, which no scope around it could give
    grace: float,
    max_output: int,
    stdin: bytes = b"",
    kill: float = KILL_SECONDS,
    is_forced: Callable[[], bool] = never,
    spare: Callable[[], Collection[int]] = frozenset,
    before_ending: Callable[[], Awaitable[object]] | None = None,
    on_started: Callable[[int], None] = lambda pid: None,
    on_line: Callable[[bytes], Awaitable[None]] | None = None,
    on_stdout: Callable[[bytes], Awaitable[None]] | None = None,
    on_interrupted: Callable[[Outcome], None] = lambda outcome: outcome.stdout.close(),
) -> Outcome:
    """Runs a program in a session of its own until its process ends. Raises `CannotStart`.

    `marker` are the variables in `env` that tell this call's processes from all others. `timeout` and `grace` (from
    SIGTERM to SIGKILL, unless it `is_forced`) are seconds, as is `kill`, for which killing is repeated. The first
    `max_output` bytes of stdout are kept, the rest is read, counted and dropped. `on_line` gets each line on `LINE_FD`,
    without its newline, as soon as it is there, and an unfinished one at the end; a cancellation waits for it.
    `on_stdout` gets what is printed until the call is cancelled. An exception of either ends the tree and goes on.
    Before the tree is ended `before_ending` is waited for (the tool goes on) and `spare` asked for pids to leave alone.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    mark = mark_of(marker)
    running = _Running(start(argv, cwd, env), stdin, max_output, on_line, on_stdout, mark)
    tree = Tree(partial(belongs, running.pid, mark), spare, group=running.pid, is_forced=is_forced, kill=kill)
    end = partial(_ended, running, tree, grace, before_ending)
    try:
        on_started(running.pid)
        outcome = await _followed(running, end, timeout)
    except BaseException:
        await _interrupted(running, end, on_interrupted)
        raise
    return await _passed_on(running, outcome, on_interrupted)


async def _interrupted(
    running: "_Running", end: Callable[[], Awaitable[Outcome]], on_interrupted: Callable[[Outcome], None]
) -> None:
    by_itself = running.has_ended()
    outcome = (await end())._replace(by_itself=by_itself)
    on_interrupted(outcome)
    if running.failure is not None:
        raise running.failure from None  # a line that was not taken is not to go down in a cancellation


async def _passed_on(running: "_Running", outcome: Outcome, on_interrupted: Callable[[Outcome], None]) -> Outcome:
    try:
        if running.failure:
            raise running.failure
        await running.pass_output_on()
    except BaseException:
        on_interrupted(outcome)
        raise
    return outcome


async def _followed(running: "_Running", end: Callable[..., Awaitable[Outcome]], seconds: float | None) -> Outcome:
    with anyio.move_on_after(seconds) as limit:
        await running.until_exit()
    # It may have ended by itself while the time-out was on its way: then that is what happened.
    if limit.cancelled_caught and not running.exited:
        return await end(timed_out=True)
    return await running.finish([])


async def _ended(
    running: "_Running",
    tree: Tree,
    grace: float,
    before: Callable[[], Awaitable[object]] | None,
    *,
    timed_out: bool = False,
) -> Outcome:
    try:
        if before:
            await _while_reading(running, before)
    finally:
        # Also if that failed, as where the tree of files is gone: the tool is ended all the same.
        running.hold_output()
        survivors = await end_tree(tree, grace, running.pump)
    return await running.finish(survivors, timed_out=timed_out)


async def _while_reading(running: "_Running", work: Callable[[], Awaitable[object]]) -> None:
    """Does `work`, also in a cancellation; a tool that is in the middle of saying something is not held up by it."""

    async def read() -> None:
        while True:
            await running.pump(60.0)

    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await work()
            group.cancel_scope.cancel()


class _Running:
    """A started process and our ends of its pipes. One task waits, for all of them at once."""

    def __init__(
        self,
        started: Started,
        stdin: bytes,
        max_output: int,
        on_line: Callable[[bytes], Awaitable[None]] | None,
        on_stdout: Callable[[bytes], Awaitable[None]] | None,
        mark: Mark,
    ) -> None:
        self.pid = started.process.pid
        self.exited = False
        self.failure: Exception | None = None
        self._process = started.process
        self._status: os.waitid_result | None = None
        self._stdin = memoryview(stdin)
        self._on_line = on_line
        self._on_stdout = on_stdout
        self._printed: deque[bytes] = deque()
        self._is_held = False
        self._mark = mark
        self._stdout, self._stderr, self._lines = Spool(max_output), Tail(), Lines()
        self._pidfd = open_pidfd(self.pid)
        self._ready = selectors.DefaultSelector()
        self._outputs: dict[IO[bytes], Callable[[bytes], object]] = {}
        assert started.process.stdin
        assert started.process.stdout
        assert started.process.stderr
        self._read(started.process.stdout, self._take_stdout)
        self._read(started.process.stderr, self._stderr.write)
        self._read(started.lines, self._lines.write)
        self._input = started.process.stdin
        os.set_blocking(self._input.fileno(), False)
        self._ready.register(self._input, selectors.EVENT_WRITE, self._feed)
        if self._pidfd is not None:
            self._ready.register(self._pidfd, selectors.EVENT_READ, self._note_exit)

    async def until_exit(self) -> None:
        while not self.exited:
            await self._turn(None)
            if self.failure:
                raise self.failure

    async def pump(self, seconds: float) -> None:
        """Passes the time with reading: a tool that was asked to end may have much to say first."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await self._turn(left)

    async def finish(self, survivors: list[Survivor], *, timed_out: bool = False) -> Outcome:
        """Reads what the tool has left in the pipes, and collects its exit status; not to be cancelled."""
        self.hold_output()
        with anyio.CancelScope(shield=True):
            await self._read_the_rest()
        output_open = bool(self._outputs)
        self._close()
        exit_code, signal = self._collect()
        settle(self._mark)
        return Outcome(
            exit_code=exit_code,
            signal=signal,
            stdout=self._stdout.opened(),
            stdout_kept=self._stdout.kept,
            stdout_total=self._stdout.total,
            stderr=self._stderr.content(),
            stderr_total=self._stderr.total,
            output_open=output_open,
            timed_out=timed_out,
            survivors=tuple(survivors),
        )

    async def _read_the_rest(self) -> None:
        for pipe in list(self._outputs):
            self._take(pipe, _PIPE_BYTES)
        end = time.monotonic() + LINGER_SECONDS
        while self._outputs and (left := end - time.monotonic()) > 0:
            await self._turn(left)
        self._lines.end()
        await self._pass_lines_on()

    def _collect(self) -> tuple[int | None, int | None]:
        """Exit code or signal. Not Popen's word: it takes a lost status for success."""
        if self._process.poll() is not None:
            own_children.discard(self.pid)
        if (status := self._status) is None:
            return None, None
        return (status.si_status, None) if status.si_code == os.CLD_EXITED else (None, status.si_status)

    async def _turn(self, seconds: float | None) -> None:
        """Waits until something is ready, at most `seconds`, and serves it."""
        polled = self._pidfd is None and not self.exited
        if polled:
            seconds = _POLL_SECONDS if seconds is None else min(seconds, _POLL_SECONDS)
        with anyio.move_on_after(seconds):
            await anyio.wait_readable(self._ready.fileno())
        for key, _ in self._ready.select(0):
            key.data()
        if polled:
            self._note_exit()
        await self._pass_lines_on()
        if not self._is_held:
            await self.pass_output_on()

    def has_ended(self) -> bool:
        """Whether the process has ended by now."""
        if not self.exited:
            self._note_exit()
        return self.exited

    def hold_output(self) -> None:
        """From here on what is printed waits for `pass_output_on`: nobody may wait for a receiver in a shield."""
        self._is_held = True

    def _take_stdout(self, chunk: bytes) -> None:
        self._stdout.write(chunk)
        if self._on_stdout and len(self._printed) < _HELD_CHUNKS:
            self._printed.append(chunk)

    async def pass_output_on(self) -> None:
        """Hands what was printed to `on_stdout`. Not shielded: a stop has to reach whoever waits in there."""
        while self._printed and self._on_stdout:
            await self._on_stdout(self._printed.popleft())

    async def _pass_lines_on(self) -> None:
        while self._lines.complete and self._on_line:
            line = self._lines.complete.popleft()
            try:
                with anyio.CancelScope(shield=True):
                    await self._on_line(line)
            except Exception as error:  # noqa: BLE001  whatever it is, the tree is ended first
                self.failure, self._on_line = error, None

    def _note_exit(self) -> None:
        # The status is left with the kernel until `finish`: while it is there, neither the pid nor the
        # process group of this number can be anyone else's.
        try:
            self._status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            self.exited = self._status is not None
        except ChildProcessError:  # SIGCHLD is ignored: the kernel has thrown the status away
            self.exited = True
        if self.exited and self._pidfd is not None:
            self._ready.unregister(self._pidfd)

    def _read(self, pipe: IO[bytes], write: Callable[[bytes], object]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._outputs[pipe] = write
        self._ready.register(pipe, selectors.EVENT_READ, partial(self._take, pipe))

    def _take(self, pipe: IO[bytes], size: int = _READ_BYTES) -> None:
        with suppress(BlockingIOError):
            if chunk := os.read(pipe.fileno(), size):
                self._outputs[pipe](chunk)
                return
            self._ready.unregister(pipe)
            del self._outputs[pipe]
            pipe.close()

    def _feed(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._input.fileno(), self._stdin[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads no more: its own choice, and no failure
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._ready.unregister(self._input)
            self._input.close()

    def _close(self) -> None:
        self._ready.close()
        for pipe in [self._input, *self._outputs]:
            pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
