"""`recover` and `reconcile`: runs whose executor is gone, and operations of which nobody knows how they ended."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterable

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.kinship import learn_from_children, tell_parents
from agentrun.commands.names import Target, find
from agentrun.commands.reconcile import ask as ask_probes
from agentrun.commands.reconcile import reconcile, unresolved
from agentrun.errors import EXIT_CODES, AgentrunError, StorageFailed, UsageError
from agentrun.records.operation import Operation
from agentrun.records.views import Recovered
from agentrun.render.json import error_doc, json_line
from agentrun.render.plain import error_text
from agentrun.render.recovering import operation_text, recovered_text
from agentrun.states import SETTLEMENTS, OperationStatus


def recover(options: Options, *, watch: bool, dry_run: bool) -> int:
    """Takes up the runs that nobody drives, once or for as long as it is let."""
    if watch and dry_run:
        raise UsageError("--watch acts, --dry-run does not: one of them, please")
    return _Recovering(options).watch() if watch else _Recovering(options).once(dry_run=dry_run)


def settle(
    options: Options, session: str, operation: str | None, status: str | None, note: str | None, *, ask: bool
) -> int:
    """Lists what is unresolved in a run, or takes the user's word for how an operation ended."""
    place = options.place()
    target = find(place.tree, session)
    run_dir = target.run()
    if operation is None:
        if status is not None or note is not None:
            raise UsageError("--as and --note need an operation", hint=f"agentrun reconcile {session} OP --as STATUS")
        learn_from_children(place, target.session, run_dir)
        if ask:
            ask_probes(place, target.session, run_dir)
        found = unresolved(run_dir)
        _say_operations(options, Target(target.session, run_dir.run_id), found)
        if not (found or options.json):
            output.note(f"nothing of {run_dir.name} is unresolved")
        return exits.OK
    if ask:
        raise UsageError("--ask asks about all of a run; leave out the operation, or say yourself how it ended")
    if status not in SETTLEMENTS:
        said = "say how it ended" if status is None else f"{status!r} is no way to have ended"
        raise UsageError(
            f"{said}: --as {'|'.join(SETTLEMENTS)}", hint=f"agentrun reconcile {session} {operation} --as ..."
        )
    learn_from_children(place, target.session, run_dir)
    settled = reconcile(target.session, run_dir, operation, OperationStatus(status), note)
    tell_parents(place, run_dir.load())
    _say_operations(options, Target(target.session, run_dir.run_id), (settled,))
    return exits.OK


class _Recovering:
    """One `recover`: what it finds goes to standard output, one line each; `is_left` says that something is left.

    `refusal` is the exit code for a disk that refused something meanwhile: that is no state of a run.
    """

    def __init__(self, options: Options) -> None:
        from agentrun.commands.patrol import Patrol  # what it needs is of no use to any other command

        self._options = options
        self._patrol = Patrol(options.place(), self._damaged)
        self._is_left = False
        self._refusal = 0

    def once(self, *, dry_run: bool) -> int:
        self._say(self._patrol.dry_run() if dry_run else self._patrol.once())
        return self._refusal or (EXIT_CODES["not_over"] if self._is_left else exits.OK)

    def watch(self) -> int:
        self._say(self._patrol.watch(_until_a_signal()))
        return exits.OK

    def _say(self, found: Iterable[Recovered]) -> None:
        for each in found:
            self._is_left = self._is_left or each.what == "left"
            if self._options.json:
                output.out_bytes(json_line(each.to_doc()))
            else:
                output.out(recovered_text(each, output.screen_of(sys.stdout, self._options)))

    def _damaged(self, error: AgentrunError) -> None:
        """Something could not be looked at, so it is left; the others are."""
        self._is_left = True
        if isinstance(error, StorageFailed):
            self._refusal = error.exit_code
        if self._options.json:
            output.say(json_line(error_doc(error)).decode("utf-8"))
        else:
            output.say(error_text(error, output.screen_of(sys.stderr, self._options)))


def _until_a_signal() -> Callable[[float], bool]:
    """Waits, until SIGTERM, SIGINT or SIGHUP asks for an end: what is being done then is done first."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    return lambda seconds: bool(select.select([reader], [], [], seconds)[0])


def _say_operations(options: Options, run: Target, operations: tuple[Operation, ...]) -> None:
    if options.json:
        names = {"sessionId": run.session.session_id, "runId": run.run_id}
        for operation in operations:
            output.out_bytes(json_line(names | operation.to_doc()))
        return
    screen = output.screen_of(sys.stdout, options)
    for operation in operations:
        output.out(operation_text(operation, screen))
