"""Who began this process: a command that a tool starts finds the run of that tool in its environment.

What stands there is believed only as far as the tree bears it out: the same tree and account, and a run that is open.
"""

from __future__ import annotations

import os

from agentrun.commands.place import Place
from agentrun.errors import AgentrunError, Conflict, ImpossibleMode, TransitionRefused
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.run import Run
from agentrun.states import EventType
from agentrun.store.identity import this_actor
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

_NAMES = ("AGENTRUN_SESSION", "AGENTRUN_RUN", "AGENTRUN_OPERATION")
# A chain of parents that is longer than this is damage, and not followed.
_LONGEST_CHAIN = 64


class Parent(NamedTuple):
    """The call that this process belongs to. `line` are its run and all above that, the nearest first."""

    session: SessionDir
    run_dir: RunDir
    operation_id: str
    line: tuple[Run, ...]

    def to_doc(self) -> Doc:
        """As `parentRun` has it."""
        return {
            "sessionId": self.run_dir.session_id,
            "runId": self.run_dir.run_id,
            "operationId": self.operation_id,
        }


class Origin(NamedTuple):
    """The parent if there is one; `note` says why what the environment names is none."""

    parent: Parent | None
    note: str | None = None


def origin_of(place: Place) -> Origin:
    """The run that began this process, if the environment names one and the tree bears it out."""
    session_id, run_id, operation_id = (place.environment.get(name) for name in _NAMES)
    if not (session_id and run_id and operation_id):
        return Origin(None)
    named = f"the environment names {session_id}/{run_id} as the parent"
    root, account = place.environment.get("AGENTRUN_ROOT", ""), place.environment.get("AGENTRUN_ACCOUNT")
    if os.path.realpath(root) != place.tree.root or account != place.tree.account:
        return Origin(None, f"{named}, which is in another tree or of another account: ignored")
    try:
        session = place.tree.session(session_id)
        run_dir = session.run(run_id)
        run = run_dir.load()
    except AgentrunError:
        return Origin(None, f"{named}, which is not there: ignored")
    if run.is_over:
        return Origin(None, f"{named}, which is over: ignored")
    return Origin(Parent(session, run_dir, operation_id, tuple(_line(place, run))))


def announce(place: Place, parent: Parent, session_id: str, after_seq: int) -> None:
    """Records in the parent that a run is about to begin in `session_id`, behind message `after_seq`; durable.

    Raises Conflict if the parent is to stop, or if runs would begin runs too deep.
    """
    _check_depth(place, parent)
    payload: Doc = {"operationId": parent.operation_id, "sessionId": session_id, "afterSeq": after_seq}
    with writing(parent.session) as writer:
        run = parent.run_dir.current(writer)
        try:
            parent.run_dir.append_as_anyone(writer, EventType.RUN_CHILD_ANNOUNCED, payload | {"actor": this_actor()})
        except TransitionRefused as error:
            raise Conflict(
                f"the parent {parent.run_dir.name} is {run.status}, and nothing new begins there",
                session_id=run.session_id,
                run_id=run.run_id,
            ) from error


def check_not_itself(parent: Parent, session_id: str) -> None:
    """Raises ImpossibleMode for a run that would wait for itself: in the session of a run above it."""
    for run in parent.line:
        if run.session_id == session_id:
            raise ImpossibleMode(
                f"{session_id}/{run.run_id} waits for this command, which would wait for it",
                hint="do not wait for it: --detach",
                session_id=run.session_id,
                run_id=run.run_id,
            )


def check_not_own(parent: Parent, run_dir: RunDir) -> None:
    """Raises ImpossibleMode for a run that ends only after the call that this process belongs to."""
    if any((run.session_id, run.run_id) == (run_dir.session_id, run_dir.run_id) for run in parent.line):
        raise ImpossibleMode(
            f"{run_dir.name} waits for {parent.operation_id} of {parent.run_dir.name}, of which this command is part: "
            "it would wait for itself",
            hint=f"look at it with: agentrun show {run_dir.name}",
            session_id=run_dir.session_id,
            run_id=run_dir.run_id,
        )


def _check_depth(place: Place, parent: Parent) -> None:
    from agentrun.config import load_config

    deepest = load_config(place.config_path).max_depth
    if len(parent.line) > deepest:
        raise Conflict(
            f"{parent.run_dir.name} is {len(parent.line) - 1} runs deep, and may begin no other",
            hint=f"max_depth in the configuration is {deepest}",
            session_id=parent.run_dir.session_id,
            run_id=parent.run_dir.run_id,
        )


def _line(place: Place, run: Run) -> list[Run]:
    line = [run]
    while line[-1].parent_run and len(line) < _LONGEST_CHAIN:
        above = line[-1].parent_run
        try:
            line.append(place.tree.session(str(above.get("sessionId"))).run(str(above.get("runId"))).load())
        except AgentrunError:
            break  # removed: what is above it cannot wait
    return line
