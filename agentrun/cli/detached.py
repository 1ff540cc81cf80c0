"""The executor of a detached run: `python -m agentrun.cli.detached ROOT ACCOUNT`, started by agentrun.

It finds the name of its run in a variable and its lock on a descriptor that it inherits, belongs to no terminal, and
says what happens in the tree alone.
"""

from __future__ import annotations

import os
import sys

from agentrun.cli.options import Options, taken_out
from agentrun.cli.output import reserve_line_descriptor
from agentrun.commands.execution import DETACHED_RUN, LIVENESS_FD, Scene, execute
from agentrun.errors import EXIT_CODES, AgentrunError


def main(arguments: list[str]) -> int:
    """Drives the run; returns an exit code that nobody may be there to see."""
    root, account = arguments
    session_id, _, run_id = taken_out(DETACHED_RUN).partition("/")
    # Its tools must not inherit the lock: a run is alive as long as its executor, not as long as a tool of it. And they
    # have a descriptor of that number themselves.
    liveness = os.dup(LIVENESS_FD)
    os.close(LIVENESS_FD)
    reserve_line_descriptor()
    place = Options(root=root, account=account).place()
    scene = Scene(None, warn=_to_nobody, leave_now=os._exit, signals=[], detached=True)
    try:
        execute(place, place.tree.session(session_id).run(run_id), liveness, scene)
    except AgentrunError as error:
        return error.exit_code
    return 0


def _to_nobody(_: str) -> None:
    """There is no terminal; what matters stands in the tree."""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_CODES["not_over"])
