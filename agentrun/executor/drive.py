"""Drives one run through one stretch: the agent, and beside it whatever can stop it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream

from agentrun.agent.outside import Outside
from agentrun.agent.protocols import Agent
from agentrun.errors import AgentrunError, TransitionRefused, UsageError
from agentrun.executor.asking import stop_outside
from agentrun.executor.audience import Audience
from agentrun.executor.heartbeat import Heartbeat
from agentrun.executor.hold import Terms
from agentrun.executor.stretch import StopChildren, StoredStretch, no_children
from agentrun.lifecycle.winding_down import DEADLINE
from agentrun.records.run import Run
from agentrun.store.identity import this_actor
from agentrun.store.liveness import InHand
from agentrun.store.sessions import SessionDir
from agentrun.store.watch import Watch

# Seconds between two attempts to end what will not die, and how many of them this process makes before it leaves the
# run in `cancelling` for the next command. Each repeats killing for as long as is configured.
STUBBORN_PAUSE = 0.5
STUBBORN_ATTEMPTS = 3

# What each signal means for a run in the foreground. A detached run hands over at SIGTERM instead.
SIGNAL_WORDS: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}


async def _nothing() -> None:
    """Nothing is begun by this run that could outlive it."""


class Job(NamedTuple):
    """All that is needed to drive a run. `liveness` is the descriptor of the executor's lock, already held.

    `end_leftovers` ends every process that the run's tools left behind and returns the names of those that it could
    not end; it asks what it is given whether to kill them at once. `stop_children` does so for the runs that a call, or
    any call, of this run began. `end_below` ends what was begun here for the run, before it is left to another, and
    returns as much; None if it may not.
    `leave_now` is called at a second Ctrl-C or SIGTERM, and does not return. `signals` are those that came before.
    """

    session: SessionDir
    run_id: str
    liveness: int
    agent: Agent
    outside: Outside
    terms: Terms
    audience: Audience
    end_leftovers: Callable[[Callable[[], bool]], Awaitable[list[str]]]
    leave_now: Callable[[int], None]
    signals: list[int]
    detached: bool = False
    stop_children: StopChildren = no_children
    end_below: Callable[[], Awaitable[list[str] | None]] = _nothing


class Ended(NamedTuple):
    """How the stretch ended: the run as it stands, and the signal that ended it, if one did."""

    run: Run
    signal: int | None


def execute(job: Job) -> Ended:
    """Claims the run and drives it until it ends, waits, or must be left.

    A run that was cancelled before it could be claimed is left as it is. Raises FencedOut if another executor took it
    over, StorageFailed if nothing more could be recorded.
    """
    return anyio.run(_execute, job)


async def _execute(job: Job) -> Ended:
    heartbeat = Heartbeat(job.session.another(), job.run_id, job.terms.lease)
    try:
        with InHand(job.liveness) as hand:
            heartbeat.start()
            stretch = StoredStretch(job.session, job.run_id, job.liveness, job.terms, job.audience, job.stop_children)
            hand.keep()
    except TransitionRefused:
        heartbeat.stop()
        run = job.session.run(job.run_id).load()
        if run.is_over:
            return Ended(run, None)
        raise
    except BaseException:
        heartbeat.stop()
        raise
    heartbeat.renew(stretch.lease, stretch.spent, lambda: stretch.has_lock)
    try:
        async with anyio.create_task_group() as group:
            # First: an agent may be done, or leave the run to the user, before any other task begins.
            await group.start(_heed_signals, job, stretch)
            group.start_soon(_heed_others, stretch)
            group.start_soon(_heed_time, stretch)
            group.start_soon(_keep_time, job.audience)
            await _work(job, stretch)
            await _wind_down(job, stretch)
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        # Whoever takes the run up finds what carries its marker. What dropped that is found by its parent alone: us.
        await job.end_below()
        raise _only_error(errors) from errors
    finally:
        heartbeat.stop()
        stretch.release()
    if stretch.fenced:
        raise stretch.fenced
    return Ended(stretch.run_dir.load(), job.signals[0] if job.signals else None)


async def _work(job: Job, stretch: StoredStretch) -> None:
    with stretch.scope:
        try:
            if not stretch.look():
                await job.agent.run(stretch)
        except Exception as error:  # noqa: BLE001 - an agent is foreign code, see below
            # Whatever it raises is the end of its run and of nothing else. One that works in a group of tasks raises a
            # group, which says nothing of the cause.
            cause = _only_error(error) if isinstance(error, ExceptionGroup) else error
            # UsageError: it said what no record can hold, a number without an end for one.
            if isinstance(cause, AgentrunError) and not isinstance(cause, UsageError):
                # The disk refuses or the tree is damaged: there is nothing to record it in.
                raise cause from cause.__cause__
            stretch.note_failure(f"the agent failed: {type(cause).__name__}: {cause}")
    if not (stretch.left or stretch.fenced or stretch.run_dir.load().is_over):
        stretch.note_failure("the agent ended without a report")


async def _wind_down(job: Job, stretch: StoredStretch) -> None:
    """Ends the stretch once nothing of the run is alive any more; otherwise the run stays `cancelling`."""
    if stretch.fenced or stretch.run_dir.load().ending is None:
        if stretch.is_given_away:
            alive = await job.end_below()
            if stretch.fenced and alive == []:
                stretch.note_end()
        if stretch.leave():
            return

    def is_forced() -> bool:
        return stretch.run_dir.seen.force

    for _ in range(STUBBORN_ATTEMPTS):
        alive = [*await job.stop_children(None, is_forced), *await job.end_leftovers(is_forced)]
        # Once more: a process that was about to begin a child may have done so before it was ended itself.
        alive += await job.stop_children(None, is_forced)
        if not alive:
            if stretch.leave_unseen():
                return
            await stop_outside(stretch.session, stretch.run_dir, stretch.lease, job.outside, is_forced)
            stretch.end()
            return
        stretch.name_survivors(list(dict.fromkeys(alive)))
        await anyio.sleep(STUBBORN_PAUSE)


async def _heed_signals(job: Job, stretch: StoredStretch, *, task_status: TaskStatus[None]) -> None:
    # What was ignored when the process began stays so: `nohup`, and Ctrl-C for a background job of a script.
    heeded = [each for each in map(signal.Signals, SIGNAL_WORDS) if signal.getsignal(each) is not signal.SIG_IGN]
    with _caught(heeded) as signals:
        if job.signals:
            stretch.request_stop("signal", SIGNAL_WORDS[job.signals[0]], "signal", this_actor())
        task_status.started()
        async for number in signals:
            if stretch.left:
                continue  # it waits for the user, or for another executor: it is not ours to stop any more
            if job.detached and number == signal.SIGTERM:
                stretch.hand_over("shutdown")
            elif _hurries(job.signals, number):
                job.leave_now(number)
            else:
                first = not job.signals
                job.signals.append(number)
                if first:
                    stretch.request_stop("signal", SIGNAL_WORDS[number], "signal", this_actor())


def _hurries(earlier: list[int], number: int) -> bool:
    """Whether this signal is somebody's second: the run is left as it is.

    SIGHUP is nobody's impatience: a terminal that is closed sends it several times (the kernel to its foreground, the
    shell to its jobs, the service manager after SIGTERM), and nobody is left there to type the next command.
    """
    return number != signal.SIGHUP and any(each != signal.SIGHUP for each in earlier)


@contextmanager
def _caught(numbers: Iterable[signal.Signals]) -> Iterator[MemoryObjectReceiveStream[int]]:
    """The signals that come.

    Not anyio's receiver: it counts bytes of a pipe, to which a tool's process adds when Ctrl-C hits it between its fork
    and its exec. One press would count as two, and two leave the run where it is.
    """
    sender, receiver = anyio.create_memory_object_stream[int](inf)
    loop = asyncio.get_running_loop()

    def put(number: int) -> None:
        with suppress(anyio.ClosedResourceError):  # it came when the run was over
            sender.send_nowait(number)

    def pass_on(number: int, _: object) -> None:
        loop.call_soon_threadsafe(put, number)

    former = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield receiver
    finally:
        for number in numbers:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if signal.SIGHUP in former:
            # A second one must not keep it from beginning the run that is next in the queue.
            signal.signal(signal.SIGHUP, former[signal.SIGHUP])
        sender.close()
        receiver.close()


async def _heed_others(stretch: StoredStretch) -> None:
    """Notices within milliseconds what others wrote into the run: a cancel, an answer, a takeover."""
    watch = Watch(stretch.run_dir.directory, stretch.session.directory)
    loop, is_woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        # Most of what changes is what this process writes itself: the task is not woken for that.
        watch.clear()
        if stretch.may_have_news():
            is_woken.set()

    if watch.fd is not None:
        loop.add_reader(watch.fd, wake)
    try:
        while True:
            stretch.show_messages()
            with anyio.move_on_after(watch.patience):
                await is_woken.wait()
            is_woken.clear()
            stretch.look()
    finally:
        if watch.fd is not None:
            loop.remove_reader(watch.fd)
        watch.close()


async def _heed_time(stretch: StoredStretch) -> None:
    """Ends the run when its executing time, or the time for an answer, is used up."""
    while True:
        left = stretch.seconds_left()
        if left is not None and left[1] <= 0:
            words = {"timeout": "its time is used up", "answer_timeout": "no answer came in time"}
            stretch.request_stop("timeout", words[left[0]], left[0], this_actor() | {"user": DEADLINE})
            return
        # At least once a second: an answer or a question changes which limit runs.
        await anyio.sleep(min(left[1], 1.0) if left else 1.0)


async def _keep_time(audience: Audience) -> None:
    """Redraws what changes with time alone."""
    due = 0.0
    while True:
        await anyio.sleep(due)
        due = audience.tick()


def _only_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The deliberate error among `errors` if there is one, else the first: one cause is what a user can act on."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [errors]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, AgentrunError)), leaves[0])
