"""Executing a run in the foreground: when its turn has come, under the eyes of its user, with signals that stop it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.audience import Shown, TerminalAudience
from agentrun.cli.options import Options
from agentrun.cli.watching import end_view
from agentrun.commands.execution import Scene, execute
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.records.views import RunView
from agentrun.render.standing import behind_text
from agentrun.states import RunStatus


def execute_here(
    options: Options,
    place: Place,
    target: Target,
    liveness: int,
    audience: Shown,
    signals: list[int],
    *,
    with_report: bool,
) -> int:
    """Waits for the run's turn, executes it, and says how it stands; returns the exit code that says the same.

    `liveness` is its lock, held since its acceptance; `signals` are those that came since, and come.
    """
    from agentrun.cli.logs import mute_libraries  # here: whoever only watches loads no `logging`

    mute_libraries()
    if target.session.active() != target.run_id and not _turn_comes(options, place, target, audience, signals):
        os.close(liveness)
        code = end_view(options, target, audience, with_report=False)
        return exits.of_signal(signals[0]) if signals else code
    scene = Scene(audience, _warn, partial(_leave_now, target.run().name), signals)
    ended = execute(place, target.run(), liveness, scene)
    code = end_view(options, target, audience, with_report=with_report)
    # A signal that came when the report was committed has stopped nothing.
    return exits.of_signal(ended.signal) if ended.signal and ended.run.status is not RunStatus.COMPLETED else code


def collect_signals() -> list[int]:
    """From here on a signal stops the accepted run, although what executes it is still being loaded."""
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays so, as `nohup` wants it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda caught, _: signals.append(caught))
    return signals


def _turn_comes(options: Options, place: Place, target: Target, audience: Shown, signals: list[int]) -> bool:
    """Waits until the slot is the run's own; False if the run was ended before, by a signal to this process or else."""
    from agentrun.commands.queueing import Turn, await_turn, withdraw

    def tell(ahead: RunView) -> None:
        if isinstance(audience, TerminalAudience):
            stream = sys.stdout if output.is_terminal(sys.stdout) else sys.stderr
            audience.outlet.write(behind_text(ahead, output.screen_of(stream, options)))
        elif ahead.executor in ("lost", "frozen") and not options.json:
            # A pipe was told at the acceptance for what it waits; but not that this may take for ever.
            output.say_in_passing(behind_text(ahead, output.screen_of(sys.stderr, options)))

    with _woken_by_signals() as wake:
        turn = await_turn(place, target, signals=signals, wake=wake, tell=tell)
    if turn is Turn.SIGNALLED:
        withdraw(place, target, signals[0])
    return turn is Turn.HERE


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """A descriptor that becomes readable with each signal: what waits for files does not notice one otherwise."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    earlier = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(reading)
        os.close(writing)


def _warn(said: str) -> None:
    output.note(said)


def _leave_now(name: str, number: int) -> None:
    """A second Ctrl-C: the run stays `cancelling`, and the next command winds it down."""
    output.say("\n")  # behind the ^C that the terminal shows
    output.note("left at once; what was started may still be running", f"end it with: agentrun cancel {name}")
    os._exit(exits.of_signal(number))
