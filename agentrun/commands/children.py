"""The runs that a run began: found through what it announced, and stopped with it.

A process of a tool announces in its own run, durable, in which session it is about to begin one; only then does it send
the prompt, whose line names the parent. So a child is found by looking through the announced sessions alone, whatever
crashed in between, and an announcement that nothing followed is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from agentrun.commands.place import Place
from agentrun.commands.stops import Stop, stop
from agentrun.commands.vigil import Vigil, end_frozen
from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc
from agentrun.records.message import COMPACT, PROMPT
from agentrun.records.run import Run
from agentrun.records.views import Child
from agentrun.store.identity import this_actor
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir
from agentrun.store.watch import Watch

# Seconds between two looks at a child that winds down, at the most.
_LOOK = 0.5


class ChildRun(NamedTuple):
    """A run that the call `operation_id` of another one began."""

    operation_id: str
    session: SessionDir
    run_dir: RunDir


def children_of(place: Place, run: Run) -> Iterator[ChildRun]:
    """The runs that `run` began, in the order in which it announced them."""
    seen: set[str] = set()
    for announced in run.children:
        for child in _children_in(place, run, announced):
            if child.run_dir.name not in seen:
                seen.add(child.run_dir.name)
                yield child


def child_views(place: Place, run: Run, on_damage: list[str]) -> tuple[Child, ...]:
    """The same, as they stand. A session that cannot be read hides no other: what is wrong goes to `on_damage`."""
    views: dict[str, Child] = {}
    for announced in run.children:
        try:
            for child in _children_in(place, run, announced):
                views[child.run_dir.name] = Child(child.operation_id, child.run_dir.view())
        except AgentrunError as error:
            if str(error) not in on_damage:
                on_damage.append(str(error))
    return tuple(views.values())


def stop_children(
    place: Place,
    parent: RunDir,
    operation_id: str | None = None,
    is_forced: Callable[[], bool] | None = None,
) -> list[str]:
    """Stops the open children by their own flow, and returns when they are over; the names of those that are not.

    Those of one call, or else all if the run is to end, or else those of the calls that are open: their tools are gone.
    A child whose executor is gone, or has to be ended since it does not respond, is wound down here.
    """
    run = parent.load()
    forced = is_forced or (lambda: run.force)
    concerned = [child for child in children_of(place, run) if _is_concerned(run, child, operation_id)]
    alive = [child for child in concerned if not child.run_dir.load().is_over]
    stops = [partial(_stop, place, child, run, forced) for child in alive]
    for each in stops:
        each()
    return [
        child.run_dir.name
        for child, each in zip(alive, stops, strict=True)
        if not _see_it_end(place, child, each, forced)
    ]


async def stop_children_here(
    place: Place, parent: RunDir, operation_id: str | None, is_forced: Callable[[], bool]
) -> list[str]:
    """`stop_children` from an executor, which goes on with the rest meanwhile."""
    from anyio import to_thread

    # Handles are not shared by threads that write. A cancellation waits for the thread.
    handle = place.tree.session(parent.session_id).run(parent.run_id)
    return await to_thread.run_sync(stop_children, place, handle, operation_id, is_forced)


def _children_in(place: Place, run: Run, announced: Doc) -> Iterator[ChildRun]:
    try:
        session = place.tree.session(str(announced.get("sessionId")))
    except AgentrunError:
        return  # it was announced, and never made; or it has been removed
    after = announced.get("afterSeq")
    for message in session.messages_since((after if isinstance(after, int) else 0) + 1):
        parent = (message.accept or {}).get("parentRun") or {}
        names = (parent.get("sessionId"), parent.get("runId"))
        if message.mode in (PROMPT, COMPACT) and names == (run.session_id, run.run_id):
            yield ChildRun(str(parent.get("operationId")), session, session.run(message.run_id))


def _is_concerned(run: Run, child: ChildRun, operation_id: str | None) -> bool:
    if operation_id is not None:
        return child.operation_id == operation_id
    return run.ending is not None or child.operation_id in {each.operation_id for each in run.open_operations}


def _stop(place: Place, child: ChildRun, parent: Run, is_forced: Callable[[], bool]) -> bool:
    """Asks for the child's end, and brings it about if nobody else is there to do so; False if that cannot be done."""
    name = f"{parent.session_id}/{parent.run_id}"
    actor = this_actor() | {"run": name}
    asked = Stop(actor, f"its parent {name} was stopped", "parent", "parent", is_forced())
    try:
        stop(place, child.session, child.run_dir, asked)
    except AgentrunError:
        return False  # it says so itself, and is named
    return True


def _take_from_frozen(place: Place, child: ChildRun) -> None:
    """Ends its executor, or, where that is not to be found here, winds the child down in its stead."""
    from agentrun.commands.recovery import recover

    frozen = end_frozen(place, child.run_dir)
    if frozen is not None:
        recover(place, child.session, child.run_dir, frozen=frozen)


def _see_it_end(place: Place, child: ChildRun, again: Callable[[], bool], is_forced: Callable[[], bool]) -> bool:
    watch = Watch(child.run_dir.directory)
    try:
        while True:
            view = child.run_dir.view()
            if view.run.is_over:
                return True
            if view.executor == "frozen":
                if Vigil().keep(child.run_dir):
                    _take_from_frozen(place, child)  # it does not hear of the stop, whatever is stored
                continue
            is_news = view.executor in ("lost", "none") or (is_forced() and not view.run.force)
            if is_news and not again():
                return False
            watch.wait(_LOOK)
    except AgentrunError:
        return False  # a frozen one that cannot be ended from here
    finally:
        watch.close()
