"""`recover` and `reconcile`: runs whose executor is gone, and operations of which nobody knows how they ended."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands.names import Target, find
from agentrun.commands.reconcile import WORDS, reconcile, unresolved
from agentrun.commands.reconcile import ask as ask_probes
from agentrun.errors import EXIT_CODES, AgentrunError, UsageError
from agentrun.records.operation import Operation
from agentrun.records.views import Recovered
from agentrun.render.json import json_line
from agentrun.render.plain import error_text
from agentrun.render.recovering import operation_text, recovered_text

app = typer.Typer()

_WORDS = [word.value for word in WORDS]


@app.command()
def recover(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="stay, and do so whenever an executor is lost")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done; write nothing")] = False,
) -> int:
    """Take up the runs that nobody drives: continue them, end them, or say what is missing.

    \b
    agentrun recover                    once; 0 = all settled, 6 = something is left
    agentrun recover --dry-run          what it would do
    agentrun recover --watch            as a service, until SIGTERM (docs/recovering.md)
    """
    if watch and dry_run:
        raise UsageError("--watch acts, --dry-run does not: one of them, please")
    return _Recovering(ctx.obj).watch() if watch else _Recovering(ctx.obj).once(dry_run=dry_run)


@app.command(name="reconcile")
def settle(
    ctx: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION/RUN", help="the run", show_default=False)],
    operation: Annotated[str | None, typer.Argument(metavar="OP", help="the operation, such as op-3")] = None,
    status: Annotated[str | None, typer.Option("--as", metavar="|".join(_WORDS), help="how it ended")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="how you know, for the record")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="ask the tools' probes first, and record what they know")] = False,
) -> int:
    """List what nobody knows about a run's operations, or say how one of them ended.

    It starts nothing: `agentrun recover` or `agentrun resume` goes on then.

    \b
    agentrun reconcile @last                                       what is unresolved
    agentrun reconcile @last --ask                                 what still is after asking the probes again
    agentrun reconcile @last op-3 --as succeeded --note "the file is there"
    """
    options: Options = ctx.obj
    target = find(options.place().tree, session)
    run_dir = target.run()
    if operation is None:
        if status is not None or note is not None:
            raise UsageError("--as and --note need an operation", hint=f"agentrun reconcile {session} OP --as STATUS")
        if ask:
            ask_probes(options.place(), target.session, run_dir)
        found = unresolved(run_dir)
        _say_operations(options, Target(target.session, run_dir.run_id), found)
        if not (found or options.json):
            output.say(f"nothing of {run_dir.name} is unresolved\n")
        return exits.OK
    if ask:
        raise UsageError("--ask asks about all of a run; leave out the operation, or say yourself how it ended")
    if status not in _WORDS:
        said = "say how it ended" if status is None else f"{status!r} is no way to have ended"
        raise UsageError(f"{said}: --as {'|'.join(_WORDS)}", hint=f"agentrun reconcile {session} {operation} --as ...")
    settled = reconcile(target.session, run_dir, operation, next(word for word in WORDS if word == status), note)
    _say_operations(options, Target(target.session, run_dir.run_id), (settled,))
    return exits.OK


class _Recovering:
    """One `recover`: what it finds goes to standard output, one line each; `is_left` says that something is left."""

    def __init__(self, options: Options) -> None:
        from agentrun.commands.patrol import Patrol  # what it needs is of no use to any other command

        self._options = options
        self._patrol = Patrol(options.place(), self._damaged)
        self._is_left = False

    def once(self, *, dry_run: bool) -> int:
        self._say(self._patrol.dry_run() if dry_run else self._patrol.once())
        return EXIT_CODES["not_over"] if self._is_left else exits.OK

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
