"""What commands return and render shows: records with what can only be seen from outside, such as a lost executor."""

from __future__ import annotations

from agentrun.named import NamedTuple, StrEnum
from agentrun.records.codec import Doc
from agentrun.states import WINDING_DOWN_WORDS, RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from agentrun.records.inputs import Inputs
    from agentrun.records.message import Message
    from agentrun.records.operation import Operation
    from agentrun.records.run import Run
    from agentrun.records.session import Session

    LateBecause = Literal["suspended", "kept_waiting", "no_room", "silent", "elsewhere"]
    Executor = Literal["alive", "none", "lost", "frozen"]
    RecoveredAs = Literal["continued", "started", "ended", "left"]


class Late(NamedTuple):
    """What is seen of an executor that has let its lease run out: `owner` names it, `pid` is its number if it is here.

    It is `suspended`; or `kept_waiting` by who has the session's lock, its `keeper` (`pid name suspended`);
    or its disk has `no_room`; or it is there and `silent`; or it is `elsewhere`, out of sight.
    """

    cause: LateBecause
    owner: str
    pid: int | None = None
    keeper: Doc | None = None

    def to_doc(self) -> Doc:
        """For scripts."""
        return {"cause": self.cause, "owner": self.owner, "pid": self.pid, "keeper": self.keeper}


class RunView(NamedTuple):
    """A run as it stands now. `status` differs from `run.status` only where the executor is lost.

    `stop_asked` says that a cancel sentinel lies there which nobody has taken up; `overdue` that a deadline has passed;
    `unattended` that its turn to begin has come, and nobody is there who begins it; `lost_ahead` is the run that has
    the slot it waits for, and has lost its executor, `frozen_ahead` one whose executor does not respond; `late` tells
    more of an executor that is `frozen`.
    """

    run: Run
    status: RunStatus
    executor: Executor
    stop_asked: bool = False
    overdue: bool = False
    unattended: bool = False
    lost_ahead: str | None = None
    frozen_ahead: str | None = None
    late: Late | None = None

    @property
    def words(self) -> str:
        """The status as a person reads it: winding down says towards which end."""
        if self.status is RunStatus.CANCELLING and self.run.ending:
            return WINDING_DOWN_WORDS[self.run.ending]
        return self.status.value

    def to_doc(self) -> Doc:
        """`run.json` as a reader folds it, and what only a look from outside tells."""
        return self.run.to_doc() | {
            "status": self.status.value,
            "executor": self.executor,
            "stopAsked": self.stop_asked,
            "overdue": self.overdue,
            "unattended": self.unattended,
            "lostAhead": self.lost_ahead,
            "frozenAhead": self.frozen_ahead,
            "late": self.late.to_doc() if self.late else None,
        }


class InputState(NamedTuple):
    """What became of a user's message: `waiting`, `delivered` (in `turn_id`) or `returned` (`reason`)."""

    message: Message
    state: Literal["waiting", "delivered", "returned"]
    turn_id: str | None = None
    reason: str | None = None


class SessionView(NamedTuple):
    """A session and its runs, newest first; `older` is how many there are before them."""

    session: Session
    runs: tuple[RunView, ...]
    older: int = 0


class Group(StrEnum):
    """What a person wants to know of a session first, most urgent first."""

    NEEDS_YOU = "needs you"
    RUNNING = "running"
    DONE = "done"


# By the status of the newest run; what else makes it need somebody is in `SessionRow.group`.
GROUP_OF = {
    RunStatus.WAITING_INPUT: Group.NEEDS_YOU,
    RunStatus.RECONCILING: Group.NEEDS_YOU,
    RunStatus.QUEUED: Group.RUNNING,
    RunStatus.RUNNING: Group.RUNNING,
    RunStatus.COMPACTING: Group.RUNNING,
    RunStatus.CANCELLING: Group.RUNNING,
    RunStatus.COMPLETED: Group.DONE,
    RunStatus.FAILED: Group.DONE,
    RunStatus.CANCELLED: Group.DONE,
    RunStatus.TIMED_OUT: Group.DONE,
}


class SessionRow(NamedTuple):
    """A line of a list: a session with its newest run and the time of its last change."""

    session: Session
    newest: RunView | None
    changed_at: str

    @property
    def group(self) -> Group:
        """Where it belongs: nobody but the user helps a run that is lost, overdue or has something unresolved."""
        view = self.newest
        if view is None:
            return Group.DONE
        if view.executor in ("lost", "frozen") or view.overdue or view.run.unresolved_operations:
            return Group.NEEDS_YOU
        return GROUP_OF[view.status]


class Hit(NamedTuple):
    """A place where a text was found: in a message, or in a report whose message is still to be written (`seq` None).

    `run_id` is `run-3`, or `SESSION/run-3` where the message was copied by a fork. `before`, `text` and `after` are
    what stands there, as it is stored; `is_cut` says whether there is more in front and behind.
    """

    session_id: str
    run_id: str
    seq: int | None
    role: str
    mode: str | None
    at: str | None
    before: str
    text: str
    after: str
    is_cut: tuple[bool, bool]

    def to_doc(self) -> Doc:
        """A line of `search --json`."""
        return {
            "sessionId": self.session_id,
            "runId": self.run_id,
            "seq": self.seq,
            "role": self.role,
            "mode": self.mode,
            "at": self.at,
            "before": self.before,
            "text": self.text,
            "after": self.after,
        }


class Child(NamedTuple):
    """A run that a call of another run began."""

    operation_id: str
    view: RunView

    def to_doc(self) -> Doc:
        """For scripts."""
        run = self.view.run
        return {
            "operationId": self.operation_id,
            "sessionId": run.session_id,
            "runId": run.run_id,
            "status": self.view.status.value,
        }


class RunDetail(NamedTuple):
    """A run with what happened in it, in order. `inputs` says what became of each of the user's messages.

    `children` are the runs that it began, `earlier` is how many operations there are before those given.
    """

    view: RunView
    operations: tuple[Operation, ...]
    messages: Iterable[Message]
    inputs: Inputs
    report: str | None
    children: tuple[Child, ...] = ()
    earlier: int = 0


class Accepted(NamedTuple):
    """The answer to an input: where it went, as which kind, under which number.

    `behind` is the run that holds the slot for which the input's run waits.
    """

    session_id: str
    run_id: str
    message_seq: int
    mode: str
    status: RunStatus
    behind: str | None = None

    def to_doc(self) -> Doc:
        """The first line of `send --json`."""
        return {
            "type": "accepted",
            "sessionId": self.session_id,
            "runId": self.run_id,
            "messageSeq": self.message_seq,
            "mode": self.mode,
        }


class Recovered(NamedTuple):
    """What became of a run that nobody drove, or with `dry_run` would: it was `continued` or `started` in an executor

    of its own, it has `ended`, or it is `left` as it is. `reason` says why, `hint` what to type then; `unknown` are the
    operations that keep it.
    """

    session_id: str
    run_id: str
    what: RecoveredAs
    status: RunStatus
    reason: str
    hint: str | None = None
    unknown: tuple[Operation, ...] = ()
    dry_run: bool = False

    @property
    def name(self) -> str:
        """`SESSION/RUN`."""
        return f"{self.session_id}/{self.run_id}"

    def to_doc(self) -> Doc:
        """A line of `recover --json`."""
        return {
            "type": "recovered",
            "sessionId": self.session_id,
            "runId": self.run_id,
            "outcome": self.what,
            "status": self.status.value,
            "reason": self.reason,
            "hint": self.hint,
            "unknown": [operation.operation_id for operation in self.unknown],
            "dryRun": self.dry_run,
        }
