"""What an export tells: a session or one of its runs, read piece by piece, so that a long one needs no more memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.operation import Operation
from agentrun.records.session import Session
from agentrun.records.views import RunView


class Said(NamedTuple):
    """A message in its place. `run` is `run-3`, or `SESSION/run-3` where the line was copied by a fork.

    `told` is the text as the model has it, with the names of attached files. `turn_id` is the turn that had a user's
    message delivered; `left` says why one reached no turn: `waiting`, or how the run ended. `is_permission` is true of
    a question whether a call may be made, and of what was said to that: no part of the model's conversation.
    """

    message: Message
    run: str
    told: str
    turn_id: str | None = None
    left: str | None = None
    is_permission: bool = False


class ExportedCall(NamedTuple):
    """A call that the model asked for, and the truth about it as the model was told it.

    `operation` is None for a call that was never registered.
    """

    call_id: str
    name: str
    arguments: Doc | str
    told: str
    operation: Operation | None


class ExportedTurn(NamedTuple):
    """One model request, its reply (None if there was none), what became of its calls, and what was noted behind it.

    `run_id` is the run's. `question` is what the reply asked the user. `checks` are those that the reply was given to
    as a draft; `remark` is what the model was told of those that it did not pass. `is_report` says that `text` is the
    delivered report.
    """

    run_id: str
    turn_id: str
    request: Operation | None
    text: str | None
    question: str | None
    stop_reason: str | None
    usage: Doc | None
    calls: tuple[ExportedCall, ...]
    checks: tuple[Operation, ...]
    remark: str | None
    is_report: bool = False


class RunOver(NamedTuple):
    """The end of what there is to tell of a run. `closing` is the message that says how it ended, if it is over.

    `report` is the delivered report, unless the last turn was it.
    """

    view: RunView
    report: str | None
    closing: Message | None


Step = Said | ExportedTurn | RunOver


class ExportedRun(NamedTuple):
    """One run: what it is, its stored events, and the same told in order: messages, turns, and its end."""

    view: RunView
    events: Callable[[], Iterator[Event]]
    steps: Callable[[], Iterator[Step]]
    report: Callable[[], str | None]


class Export(NamedTuple):
    """What is exported: the session, or of it the run `run_id`.

    `messages` are the stored lines, `copied` those of them that a fork took over, told; `runs` begins anew each time.
    """

    session: Session
    run_id: str | None
    messages: Callable[[], Iterator[Message]]
    copied: Callable[[], Iterator[Said]]
    runs: Callable[[], Iterator[ExportedRun]]
