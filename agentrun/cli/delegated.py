"""The command of the tool `delegate`: `python -m agentrun.cli.delegated [probe|cancel]`, started by an executor.

Like every tool it gets JSON on standard input and says its result on standard output. It is the executor of the child
run, so a signal to it stops that run, as one to `send` does.
"""

from __future__ import annotations

import os
import sys

from agentrun.cli.executing import collect_signals
from agentrun.cli.options import Options
from agentrun.cli.output import LINE_FD
from agentrun.commands.delegating import Delegated, Task, answer, delegate
from agentrun.commands.execution import Scene
from agentrun.commands.place import Place
from agentrun.errors import EXIT_CODES, AgentrunError, UsageError
from agentrun.records.codec import Doc, decode, encode_line

# How it ends if the child run did not complete; `adapters.tools.delegate` knows what they mean.
NOT_COMPLETED, UNRESOLVED = 1, 3


def main(arguments: list[str]) -> int:
    """Does what the tool was called for; returns the exit code of a tool."""
    options = Options()
    place = options._replace(account=options.place().environment.get("AGENTRUN_ACCOUNT")).place()
    try:
        given = decode(sys.stdin.buffer.read())
    except ValueError:
        given = {}
    if arguments:
        word, result = answer(place, stop=arguments == ["cancel"])
        sys.stdout.buffer.write(encode_line({"status": word} | ({"result": result} if result is not None else {})))
        return 0
    try:
        ended = _delegated(place, given)
    except AgentrunError as error:
        print(error.message, file=sys.stderr)
        return _without_end(place)
    return _say(ended)


def _delegated(place: Place, given: Doc) -> Delegated:
    text, agent = given.get("task"), given.get("agent")
    if not isinstance(text, str) or not text.strip():
        raise UsageError("the call has no task")
    scene = Scene(None, warn=_warn, leave_now=os._exit, signals=collect_signals())
    task = Task(text, agent if isinstance(agent, str) else None, place.environment.get("AGENTRUN_IDEMPOTENCY_KEY", ""))
    return delegate(place, task, scene, _tell)


def _without_end(place: Place) -> int:
    """How it ends if it was refused what it needs to see the child run to its end: that may have done anything by now.

    Only where it was not accepted, or is over and has left nothing open, did nothing happen that nobody knows of.
    """
    try:
        word, _ = answer(place, stop=False)
    except AgentrunError:
        return UNRESOLVED
    return NOT_COMPLETED if word == "failed" else UNRESOLVED


def _say(ended: Delegated) -> int:
    run = ended.run
    if ended.report is not None:
        sys.stdout.buffer.write(ended.report.encode("utf-8", "replace"))
        if run.unresolved_operations:
            sys.stdout.buffer.write(f"\n\n[{ended.words}]".encode("utf-8", "replace"))
        return 0
    print(ended.words, file=sys.stderr)
    return UNRESOLVED if run.unresolved_operations else NOT_COMPLETED


def _tell(name: str) -> None:
    """The name of the child run is the remote id of the call: stored at once, wherever this process gets to."""
    try:
        os.write(LINE_FD, encode_line({"remoteId": name}))
    except OSError:
        return  # nobody listens; the run is announced all the same


def _warn(said: str) -> None:
    print(said, file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_CODES["not_over"])
