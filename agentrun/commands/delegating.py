"""What the tool `delegate` does: begins a child run, drives it, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun import ids
from agentrun.commands import control
from agentrun.commands.children import ChildRun, children_of, stop_children
from agentrun.commands.execution import Scene, execute, make_order
from agentrun.commands.names import Target
from agentrun.commands.parents import Parent, announce, origin_of
from agentrun.commands.place import Place
from agentrun.commands.show import Follower
from agentrun.errors import AgentrunError, NotFound, UsageError
from agentrun.named import NamedTuple
from agentrun.records.ending import how_it_ended
from agentrun.records.message import PROMPT
from agentrun.records.run import Run
from agentrun.states import RunStatus
from agentrun.store.sessions import SessionDir

# Characters of a task that become the title of its session.
_TITLE = 60


class Task(NamedTuple):
    """What another agent is to do; `key` is the same for each attempt of the call."""

    text: str
    agent: str | None
    key: str


class Delegated(NamedTuple):
    """How the child run ended, also in words; `report` is None unless it completed."""

    run: Run
    report: str | None

    @property
    def words(self) -> str:
        """How it ended, with what it left unresolved."""
        return f"{self.run.session_id}: {how_it_ended(self.run)}"


def delegate(place: Place, task: Task, scene: Scene, on_child: Callable[[str], None]) -> Delegated:
    """Begins the child run, or goes on with the one that an earlier attempt began, and sees it to its end.

    `on_child` is told its name before it begins. Raises UsageError outside of a tool, and what `send` raises.
    """
    parent, note = origin_of(place)
    if parent is None:
        raise UsageError(note or "only a tool of a run delegates", hint="name delegate in the tools of an agent")
    order = make_order(place, task.agent, None)  # an agent that is not there makes no session
    session_id = next(_announced(parent), None) or ids.new_session_id()
    announce(place, parent, session_id, 0)
    on_child(f"{session_id}/{ids.run_id(1)}")
    target = Target(_session(place, parent, session_id, task), None)
    saying = control.Saying(control.said(task.text, task.key), lambda: order, mode=PROMPT, parent_run=parent.to_doc())
    acceptance = control.say(place, target, saying)
    run_dir = target.session.run(acceptance.accepted.run_id)
    if acceptance.liveness is not None:
        execute(place, run_dir, acceptance.liveness, scene)
    run = _seen_to_its_end(Target(target.session, run_dir.run_id))
    return Delegated(run, run_dir.report() if run.status is RunStatus.COMPLETED else None)


def answer(place: Place, *, stop: bool) -> tuple[str, str | None]:
    """What is to be said of a call that was cut off, and its result: the words of a tool's `probe` or `cancel`.

    With `stop`, its child runs are stopped first.
    """
    parent, _ = origin_of(place)
    if parent is None:
        return "unknown", None
    if stop:
        stop_children(place, parent.run_dir, parent.operation_id)
    runs = [_loaded(child) for child in _of(place, parent)]
    if not runs and any(_may_have_begun(place, each) for each in _announced(parent)):
        return "unknown", None
    if not runs:
        return ("cancelled" if stop else "failed"), None  # it was not accepted, and whoever would have sent it is gone
    if not all(run.is_over for run in runs):
        return "running", None
    if any(run.unresolved_operations for run in runs):
        return "unknown", None
    if runs[-1].status is RunStatus.COMPLETED:
        return "succeeded", list(_of(place, parent))[-1].run_dir.report()
    return ("cancelled" if stop else "failed"), None


def _of(place: Place, parent: Parent) -> list[ChildRun]:
    found = children_of(place, parent.run_dir.load())
    return [child for child in found if child.operation_id == parent.operation_id]


def _loaded(child: ChildRun) -> Run:
    return child.run_dir.load()


def _announced(parent: Parent) -> Iterator[str]:
    """The sessions in which earlier attempts of this call were about to begin a run."""
    announced = (each for each in parent.run_dir.load().children if each.get("operationId") == parent.operation_id)
    return (str(each.get("sessionId")) for each in announced)


def _may_have_begun(place: Place, session_id: str) -> bool:
    """Whether a run may have been there of which nothing can be read any more, and so nobody knows what it did."""
    try:
        return place.tree.session(session_id).messages.size() > 0
    except NotFound:
        # That something was said in it stays noted when it is removed.
        return place.tree.was_used(session_id)
    except AgentrunError:
        return True


def _session(place: Place, parent: Parent, session_id: str, task: Task) -> SessionDir:
    try:
        return place.tree.session(session_id)
    except AgentrunError:
        title = " ".join(task.text.split())
        return place.tree.create_session(
            title=title if len(title) <= _TITLE else f"{title[: _TITLE - 3]}...",
            session_id=session_id,
            agent=task.agent,
            working_directory=parent.session.read().working_directory,
        )


def _seen_to_its_end(target: Target) -> Run:
    """Follows the run as long as it takes: while it waits for the user, its parent does."""
    follower = Follower(target)
    try:
        while not follower.view.run.is_over:
            follower.wait(None)
            follower.step()
        return follower.view.run
    finally:
        follower.close()
