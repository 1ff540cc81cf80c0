"""Which exit code a run's state, a signal or an error becomes. The codes themselves stand in `errors.EXIT_CODES`."""

from __future__ import annotations

from agentrun.errors import EXIT_CODES
from agentrun.states import RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.operation import Operation
    from agentrun.records.views import RunView

OK = 0
_OF_STATUS = {
    RunStatus.COMPLETED: OK,
    RunStatus.FAILED: EXIT_CODES["failed"],
    RunStatus.CANCELLED: EXIT_CODES["cancelled"],
    RunStatus.TIMED_OUT: EXIT_CODES["timed_out"],
    RunStatus.WAITING_INPUT: EXIT_CODES["waiting_input"],
}


def of_run(view: RunView) -> int:
    """The code of a command that executed or watched a run to where it stands."""
    return _OF_STATUS.get(view.status, EXIT_CODES["not_over"])


def of_signal(number: int) -> int:
    """The code of a command that a signal ended, as shells have it."""
    return 128 + number


def of_interrupt() -> int:
    """The code of a command that Ctrl-C ended."""
    from signal import SIGINT  # here: making its enumerations takes half a millisecond of every start

    return of_signal(SIGINT)


def of_cancel(view: RunView) -> int:
    """The code of `cancel`: whether the run is over already."""
    return OK if view.run.status is RunStatus.CANCELLED else EXIT_CODES["not_over"]


def of_operation(operation: Operation) -> int:
    """The code of `cancel --op`: whether the operation has stopped already."""
    return EXIT_CODES["not_over"] if operation.is_open else OK
