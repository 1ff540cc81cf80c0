"""Naming, putting away, copying and removing sessions."""

from __future__ import annotations

from agentrun.errors import AgentrunError, NotFound, SlotTaken, Unresolved
from agentrun.named import NamedTuple
from agentrun.records.run import Run
from agentrun.records.session import Session
from agentrun.store import forking
from agentrun.store.document import change_session
from agentrun.store.locks import is_executor_alive
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.store.writer import Writer


def rename(session: SessionDir, title: str, expect_revision: int | None = None) -> Session:
    """Gives a session another title. Raises SeqDiffers unless it is at `expect_revision` (None: whatever it is)."""
    with writing(session) as writer:
        return change_session(writer, lambda each: each._replace(title=title), expect_revision=expect_revision)


def archive(session: SessionDir, *, archived: bool) -> Session:
    """Puts a session away, or takes it back. It changes what `ls` lists and nothing else; no run is stopped."""
    with writing(session) as writer:
        return change_session(writer, lambda each: each._replace(archived=archived))


class Forked(NamedTuple):
    """A session that was forked; `is_cut` says that the source goes on with a run of which nothing was taken."""

    session: Session
    is_cut: bool


def fork(tree: Tree, source: SessionDir, at: int | None) -> Forked:
    """A new session with the first `at` messages of `source`; None: with all before the first run that is not over.

    Raises NotFound if there are not that many, CorruptRecord if one of them cannot be read.
    """
    with writing(source) as writer:
        last = source.messages.next_seq() - 1
        seq = forking.settled_seq(writer) if at is None else at
        if seq > last:
            raise NotFound(
                f"{source.session_id} has no message {seq}; its last is {last}",
                hint=f"see them with: agentrun show {source.session_id} --messages",
                session_id=source.session_id,
            )
        # The copy must not outlive what it was copied from.
        source.messages.sync()
    return Forked(tree.fork_session(source, seq).read(), is_cut=at is None and seq < last)


def remove(tree: Tree, session: SessionDir, *, force: bool) -> None:
    """Removes a session with all its files. Nothing is cancelled by it: a session with a run that is not over stays.

    Raises SlotTaken then, and Unresolved if an operation would be forgotten of which nobody knows what it did; `force`
    gives up the latter.
    """
    with writing(session) as writer:
        _check_idle(writer)
        if not force:
            _check_resolved(tree, session)
        tree.remove_session(writer)
    tree.finish_removals()


def _check_idle(writer: Writer) -> None:
    for run_dir in writer.newest_known_runs():
        run = run_dir.current(writer)
        # Of a run that is over the executor may still be about to leave, and reads what it reports.
        if run.is_over and not is_executor_alive(run_dir.directory):
            continue
        standing = "being left by its executor" if run.is_over else run.status.value
        if run_dir.view().executor == "lost":
            standing = "not over, though its executor is gone"
        raise SlotTaken(
            f"{run_dir.name} is {standing}; removing its session would not stop it",
            hint=f"stop it first: agentrun cancel {run_dir.name} --wait",
            session_id=run.session_id,
            run_id=run.run_id,
        )


def _check_resolved(tree: Tree, session: SessionDir) -> None:
    for run_id in session.run_ids():
        run = session.run(run_id).load()
        _check_told(tree, run)
        if run.unresolved_operations:
            names = ", ".join(f"{each.operation_id} {each.name}" for each in run.unresolved_operations)
            raise Unresolved(
                f"{session.session_id}/{run_id} has unresolved operations ({names}): what they did would be forgotten",
                hint=f"say how they ended: agentrun reconcile {session.session_id}/{run_id}\n"
                f"or give them up: agentrun rm {session.session_id} --force",
                session_id=session.session_id,
                run_id=run_id,
            )


def _check_told(tree: Tree, run: Run) -> None:
    """Raises Unresolved as long as the call that began `run` has not heard how it ended: nothing else tells that."""
    parent = run.parent_run
    if parent is None:
        return
    from agentrun.config import DELEGATE  # here: most sessions were begun by nobody's call

    try:
        run_dir = tree.session(str(parent.get("sessionId"))).run(str(parent.get("runId")))
        called = [each for each in run_dir.load().open_operations if each.operation_id == parent.get("operationId")]
    except AgentrunError:
        return  # there is none, or nobody goes on with it
    if not any(each.name == DELEGATE for each in called):
        return
    is_lost = run_dir.view().executor == "lost"
    way = "have it hear that: agentrun recover" if is_lost else f"wait for it: agentrun wait {run_dir.name}"
    raise Unresolved(
        f"{run_dir.name} has not heard yet how {run.session_id}/{run.run_id} ended, which it began",
        hint=f"{way}\nor give it up: agentrun rm {run.session_id} --force",
        session_id=run.session_id,
        run_id=run.run_id,
    )
