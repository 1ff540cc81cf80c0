"""Where a run stands: what a tool's process is told of it through its environment."""

from __future__ import annotations

import os

from agentrun.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class Surroundings(NamedTuple):
    """The run that an agent is built for. Paths are absolute; `scratch` exists before a tool is called.

    `environment` is what tools inherit before the variables of the run are added, `working_directory` that in
    which the session was made. `spare` names the processes that are of other runs, wherever they were started: the
    executors of those.
    """

    root: str
    config_path: str | None
    account: str
    session_id: str
    run_id: str
    scratch: str
    working_directory: str
    environment: Mapping[str, str]
    spare: Callable[[], Collection[int]] = frozenset

    @property
    def run_directory(self) -> str:
        """The run's own directory in the tree, which holds its scratch space."""
        return os.path.dirname(self.scratch)

    def marker(self, operation_id: str) -> dict[str, str]:
        """The variables that tell the processes of one operation from all others."""
        return {
            "AGENTRUN_ROOT": self.root,
            "AGENTRUN_ACCOUNT": self.account,
            "AGENTRUN_SESSION": self.session_id,
            "AGENTRUN_RUN": self.run_id,
            "AGENTRUN_OPERATION": operation_id,
        }

    def environment_for(self, operation_id: str, idempotency_key: str, secrets: Collection[str]) -> dict[str, str]:
        """The environment of a tool's process: `secrets` are the variables that it must not inherit."""
        inherited = {name: value for name, value in self.environment.items() if name not in secrets}
        # An executor that is itself a tool of another run has that run's variables; none may shine through.
        inherited.pop("AGENTRUN_CONFIG", None)
        config = {"AGENTRUN_CONFIG": self.config_path} if self.config_path else {}
        return {
            **inherited,
            **self.marker(operation_id),
            **config,
            "AGENTRUN_IDEMPOTENCY_KEY": idempotency_key,
            "AGENTRUN_SCRATCH": self.scratch,
        }
