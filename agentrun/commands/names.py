"""What `SESSION[/RUN]` on a command line means."""

from __future__ import annotations

from agentrun import ids
from agentrun.errors import NotFound, UsageError
from agentrun.named import NamedTuple
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.store.runs import RunDir


class Target(NamedTuple):
    """A session, and the run if one was named."""

    session: SessionDir
    run_id: str | None

    def run(self) -> RunDir:
        """The run that was named, else the one whose turn it is, else the newest. Raises NotFound."""
        run_id = self.run_id or self.session.front()
        if run_id is None:
            raise NotFound(
                f"{self.session.session_id} has no run yet",
                hint=f"start one with: agentrun send {self.session.session_id} TEXT",
                session_id=self.session.session_id,
            )
        return self.session.run(run_id)


def find(tree: Tree, text: str) -> Target:
    """What `SESSION`, `SESSION/run-3` or `SESSION/3` names. Raises NotFound, Ambiguous, Denied."""
    name, slash, run = text.partition("/")
    session = tree.find(name)
    if not slash:
        return Target(session, None)
    return Target(session, session.run(run_name(run, f"see its runs with: agentrun show {session.session_id}")).run_id)


def find_session(tree: Tree, text: str) -> Target:
    """As `find`, for what is about a session as a whole. Raises UsageError for one of its runs."""
    target = find(tree, text)
    if target.run_id is not None:
        raise UsageError(
            f"{text} names a run; this command takes a session", hint=f"take it whole: {target.session.session_id}"
        )
    return target


def run_name(text: str, hint: str | None = None) -> str:
    """`run-3` for `run-3` and for `3`. Raises Denied."""
    number = ids.run_number(f"run-{text}")
    return ids.run_id(number) if number else ids.checked_id(text, "run", hint)
