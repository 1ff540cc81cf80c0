"""Driving a run from a process: in the foreground, or in one that goes on without the terminal.

This is the only place that starts another agentrun.
"""

from __future__ import annotations

import os

from agentrun.commands.doubt import kept_of
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.errors import ConfigError, Conflict, StorageFailed
from agentrun.named import NamedTuple
from agentrun.records.run import Run
from agentrun.states import RunStatus
from agentrun.store.disk import speaking_of
from agentrun.store.inbox import Order
from agentrun.store.layout import SCRATCH
from agentrun.store.liveness import InHand
from agentrun.store.locks import is_executor_alive, take_liveness
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentrun.adapters.surroundings import Surroundings
    from agentrun.agent.outside import Outside
    from agentrun.agent.protocols import Agent
    from agentrun.config import AgentConfig, Config, Patience
    from agentrun.executor.audience import Audience
    from agentrun.executor.drive import Ended, Job

# What a detached executor is started as. It may have been started by a tool, and is never ended as a part of that:
# it drives another run, which is stopped by its own flow if it is a child of the tool's.
DETACHED = "agentrun.cli.detached"
# The descriptor under which a detached executor finds the lock that was taken for it.
LIVENESS_FD = 3
# What a detached executor is to execute. Every user of the machine sees its command line, and nobody its environment.
DETACHED_RUN = "AGENTRUN_DETACHED_RUN"
# What a tool gets to know of its run must not be taken for what belongs to another run's executor.
_OF_A_TOOL = (
    "AGENTRUN_SESSION",
    "AGENTRUN_RUN",
    "AGENTRUN_OPERATION",
    "AGENTRUN_IDEMPOTENCY_KEY",
    "AGENTRUN_SCRATCH",
)


class Scene(NamedTuple):
    """Who is there while a run is executed in this process; `audience` None: nobody.

    `warn` tells the user something that is no error; `leave_now` ends the process at a second Ctrl-C;
    `signals` collects those that come while the run is not executed yet.
    """

    audience: Audience | None
    warn: Callable[[str], None]
    leave_now: Callable[[int], None]
    signals: list[int]
    detached: bool = False


def make_order(place: Place, agent: str | None, timeout: float | None) -> Order:
    """What a prompt's run needs besides its text; its agent is built once for a check, before anything is accepted.

    `agent` None is the configuration's default, `timeout` None the agent's own, in seconds. Raises ConfigError.
    """
    from agentrun.config import load_config

    config = load_config(place.config_path)
    chosen = config.agent(agent, unconfigured=None if config.path else _embedded_if_installed())
    _check_agent(config, chosen, place.environment)
    return Order(
        agent=chosen.name,
        timeout=chosen.timeout if timeout is None else timeout,
        config={"path": config.path, "sha256": config.sha256} if config.path else None,
    )


def _embedded_if_installed() -> str | None:
    """The agent that works without any configuration, if this machine has what it needs."""
    from agentrun.adapters.models.weights import is_installed

    return "local" if is_installed() else None


def execute(place: Place, run_dir: RunDir, liveness: int, scene: Scene) -> Ended:
    """Drives a run in this process until it ends, waits or has to be left. `liveness` is its lock, already held.

    Raises ConfigError (the run stays as it is), FencedOut, StorageFailed.
    """
    with kept_of(run_dir):
        with InHand(liveness) as hand:
            from agentrun.adapters.process import become_subreaper
            from agentrun.executor.drive import execute as drive

            session = place.tree.session(run_dir.session_id)
            job = _job(place, session, run_dir, liveness, scene)
            hand.keep()
        # What a tool leaves behind becomes this process's child, so that it can be found and ended.
        become_subreaper()
        ended = drive(job)
    start_next(place, session)
    return ended


def execute_own(place: Place, target: Target, liveness: int, agent: Agent) -> Ended:
    """As `execute`, with an agent that the caller has made, in a process that is the caller's.

    So only what carries the run's mark is ended with it, also where it has to be left in the middle: the other children
    of the process are none of ours.
    """
    from agentrun.agent.outside import Unreachable
    from agentrun.commands.children import stop_children_here
    from agentrun.commands.leftovers import end_marked_here, end_marked_if_ours
    from agentrun.config import LEASE_SECONDS, USUAL_PATIENCE
    from agentrun.executor.audience import NoAudience
    from agentrun.executor.drive import Job
    from agentrun.executor.drive import execute as drive
    from agentrun.executor.hold import Terms
    from agentrun.store.sight import check_sees_processes

    with InHand(liveness) as hand:
        check_sees_processes()
        session, run_dir = place.tree.session(target.session.session_id), target.run()
        run = run_dir.load()
        hand.keep()
    job = Job(
        session=session,
        run_id=run.run_id,
        liveness=liveness,
        agent=agent,
        outside=Unreachable(f"nobody can be asked: {run.agent} is known to its own program alone"),
        terms=Terms(LEASE_SECONDS, run.timeout, None, []),
        audience=NoAudience(),
        end_leftovers=lambda is_forced: end_marked_here(place, run_dir, USUAL_PATIENCE, is_forced),
        leave_now=_interrupt,
        signals=[],
        stop_children=lambda operation_id, is_forced: stop_children_here(place, run_dir, operation_id, is_forced),
        end_below=lambda: end_marked_if_ours(place, run_dir, USUAL_PATIENCE),
    )
    with kept_of(run_dir):
        ended = drive(job)
    start_next(place, session)
    return ended


def _interrupt(_: int) -> None:
    raise KeyboardInterrupt


def check_executable(place: Place, run: Run) -> None:
    """Raises ConfigError if what the run was accepted with is gone, or cannot be driven any more."""
    config = config_of(place, run, warn=lambda _: None)
    _check_agent(config, config.agent(run.agent), place.environment)


def start_detached(place: Place, session_id: str, run_id: str, liveness: int) -> None:
    """Starts a process that drives the run without this terminal; the lock passes to it without a gap.

    It is let go here in any case, so a run that nobody could be started for is seen to be driven by nobody.

    Raises StorageFailed if no process can be started; the run stays accepted then.
    """
    import sys

    # -P: a module in the directory where the user happens to be is not taken for one of ours.
    argv = [sys.executable, "-P", "-m", DETACHED, place.tree.root, place.tree.account]
    environment = {name: value for name, value in place.environment.items() if name not in _OF_A_TOOL}
    environment[DETACHED_RUN] = f"{session_id}/{run_id}"
    if place.config_path is not None:
        environment["AGENTRUN_CONFIG"] = place.config_path  # also where it was named by --config
    null = os.devnull
    if liveness <= LIVENESS_FD:
        # In a process without standard streams it may be one of those that are opened just below.
        liveness = _above(liveness, LIVENESS_FD)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, liveness, LIVENESS_FD),
    ]
    try:
        # A session of its own: closing the terminal reaches it no more.
        os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True)
    except OSError as error:
        raise StorageFailed(
            f"no process could be started for {session_id}/{run_id}: {error.strerror}",
            hint=f"it is accepted; start it with: agentrun send {session_id} TEXT",
        ) from error
    finally:
        os.close(liveness)


def _above(fd: int, least: int) -> int:
    """`fd` under a number above `least`; the old one is closed."""
    import fcntl

    try:
        with speaking_of("the executor's lock"):
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least + 1)
    finally:
        os.close(fd)


def start_next(place: Place, session: SessionDir) -> bool:
    """Starts the run that has got the slot, detached, unless it was started or its own process waits with it.

    Whether it has. For whoever may have freed the slot, and whoever comes by: a queued run whose process died is not
    lost. Raises StorageFailed if no process can be started; the run stays queued then.
    """
    run_id = session.active()
    if run_id is None or not session.has_run(run_id):
        return False
    run_dir = session.run(run_id)
    run = run_dir.load()
    if run.status is not RunStatus.QUEUED or run_dir.unread(run) or is_executor_alive(run_dir.directory):
        return False
    from agentrun.store.sight import sees_processes

    if not sees_processes():
        return False  # nothing is executed here: whoever comes by elsewhere starts it
    liveness = take_liveness(run_dir.directory)
    if liveness is None:
        return False
    with InHand(liveness) as hand:
        if run_dir.load().status is not RunStatus.QUEUED:
            return False  # it was executed, or ended, between the two looks
        hand.keep()
    start_detached(place, run_dir.session_id, run_id, liveness)
    return True


class then_start_next:
    """Starts the run that has the slot afterwards; also when the command was refused, since it may have freed it.

    Not after any other error: a run that was to be cancelled, and could not be for want of room, is not begun instead.
    """

    def __init__(self, place: Place, session: SessionDir) -> None:
        self._place = place
        self._session = session

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Conflict):
            start_next(self._place, self._session)


def _job(place: Place, session: SessionDir, run_dir: RunDir, liveness: int, scene: Scene) -> Job:
    from agentrun.adapters.registry import build_agent, build_checks, build_outside
    from agentrun.commands.children import stop_children_here
    from agentrun.commands.leftovers import end_descendants_here, end_leftovers_here
    from agentrun.executor.audience import NoAudience
    from agentrun.executor.drive import Job
    from agentrun.executor.hold import Terms
    from agentrun.store.sight import check_sees_processes

    check_sees_processes()
    run = run_dir.load()
    config = config_of(place, run, scene.warn)
    agent = config.agent(run.agent)
    surroundings = _surroundings(place, session, run_dir, config)
    return Job(
        session=session,
        run_id=run.run_id,
        liveness=liveness,
        agent=build_agent(config, agent, surroundings),
        outside=build_outside(config, surroundings),
        terms=Terms(config.lease, run.timeout, agent.answer_timeout, build_checks(config, agent, surroundings)),
        audience=scene.audience or NoAudience(),
        end_leftovers=lambda is_forced: end_leftovers_here(place, run_dir, config.patience, is_forced),
        leave_now=scene.leave_now,
        signals=scene.signals,
        detached=scene.detached,
        stop_children=lambda operation_id, is_forced: stop_children_here(place, run_dir, operation_id, is_forced),
        end_below=lambda: end_descendants_here(place, run_dir, config.patience, lambda: False),
    )


def outside_of(place: Place, run_dir: RunDir) -> Outside:
    """What can be asked about the actions of a run. Where its configuration is gone that is nobody, and it says so."""
    from agentrun.adapters.registry import build_outside
    from agentrun.agent.outside import Unreachable

    session = place.tree.session(run_dir.session_id)
    try:
        config = config_of(place, run_dir.load(), warn=lambda _: None)
    except ConfigError as error:
        return Unreachable(f"nobody can be asked: {error.message}")
    return build_outside(config, _surroundings(place, session, run_dir, config))


def patience_of(place: Place, run_dir: RunDir) -> Patience:
    """What is given to processes that the run left; the defaults where its configuration is gone."""
    from agentrun.config import USUAL_PATIENCE

    try:
        return config_of(place, run_dir.load(), warn=lambda _: None).patience
    except ConfigError:
        return USUAL_PATIENCE


def _surroundings(place: Place, session: SessionDir, run_dir: RunDir, config: Config) -> Surroundings:
    from agentrun.adapters.registry import Surroundings
    from agentrun.commands.leftovers import other_executors

    return Surroundings(
        root=place.tree.root,
        config_path=config.path,
        account=place.tree.account,
        session_id=run_dir.session_id,
        run_id=run_dir.run_id,
        scratch=run_dir.directory.at(SCRATCH),
        working_directory=session.read().working_directory or os.curdir,
        environment=place.environment,
        spare=other_executors(place, run_dir.session_id, run_dir.run_id),
    )


def _check_agent(config: Config, agent: AgentConfig, environment: Mapping[str, str]) -> None:
    """Raises ConfigError if the agent cannot be driven: it is built for a run that does not exist, and thrown away."""
    from agentrun.adapters.registry import Surroundings, check_agent
    from agentrun.store.sight import check_sees_processes

    check_sees_processes()

    check_agent(config, agent, Surroundings("", None, "", "", "", "", "", environment))


def config_of(place: Place, run: Run, warn: Callable[[str], None]) -> Config:
    """The configuration that the run was accepted with, also where it was moved. Raises ConfigError if it is gone."""
    from agentrun.config import load_config

    named = run.config or {}
    path = named.get("path")
    try:
        config = load_config(path)
    except ConfigError as error:
        moved = _moved(place, path, named.get("sha256"))
        if moved is not None:
            warn(f"{path} is not there any more; {moved.path} says the same, and is used")
            return moved
        error.hint = (
            f"{run.session_id}/{run.run_id} stays as it is until that file can be read again\n"
            "if it was moved and says the same, name it: agentrun --config FILE ..."
        )
        raise
    if path and config.sha256 != named.get("sha256"):
        warn(f"{path} has changed since {run.session_id}/{run.run_id} was accepted; it is used as it is now")
    return config


def _moved(place: Place, path: object, sha256: object) -> Config | None:
    """The configuration in effect, if it is the file that was at `path`, where no file is any more: as after `mv` of a

    tree with the one in it. What it says relative to itself has come along.
    """
    from agentrun.config import load_config

    if not isinstance(path, str) or place.config_path is None or os.path.lexists(path):
        return None
    try:
        config = load_config(place.config_path)
    except ConfigError:
        return None
    return config if config.sha256 == sha256 else None
