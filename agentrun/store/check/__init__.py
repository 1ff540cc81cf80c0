"""Looks a session over for everything that is not as it should be, and puts right what can be made again.

Looking changes nothing. Repairing completes what follows from the records - runs, snapshots, the slot, delivered
reports, hints of keys - and keeps damaged and torn bytes beside their log. It deletes nothing, but for the rest of a
session that somebody had removed. No record is ever rewritten: what is damaged stays where it is, so that every offset
that was told to anybody stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.errors import AgentrunError, NewerFormat, NotFound, TooManyOpen
from agentrun.records.finding import Finding, Kind
from agentrun.store import layout
from agentrun.store.check.conversation import look_at_session
from agentrun.store.check.repair import repair_session
from agentrun.store.disk import Directory
from agentrun.store.tree import Tree

__all__ = ["check_session", "check_tree", "to_nobody"]


def to_nobody(error: AgentrunError) -> None:
    """The findings say what is not repaired; why, is told to nobody."""


def check_session(
    tree: Tree, session_id: str, *, repair: bool, on_refusal: Callable[[AgentrunError], None] = to_nobody
) -> Iterator[Finding]:
    """What is wrong with one session; with `repair`, what could be put right is, and is marked so.

    An error of the tree itself (a planted link, a file of somebody else's) is a finding, not an exception; TooManyOpen
    says nothing of the tree, and is raised. A session that has been removed has nothing wrong with it. That a repair
    was refused, by a full disk say, goes to `on_refusal`.
    """

    def refused(error: AgentrunError) -> None:
        if not tree.is_listed(session_id):
            return
        error.session_id = session_id
        if not isinstance(error, NewerFormat):
            error.hint = f"then again: agentrun check {session_id} --repair"
        on_refusal(error)

    try:
        session = tree.listed(session_id)
        if session is not None:
            yield from repair_session(session, refused) if repair else look_at_session(session)
    except TooManyOpen:
        raise
    except (AgentrunError, ValueError) as error:
        # (A name that the system does not take, whoever stored it, hides no other session either.)
        if not tree.is_listed(session_id):
            return
        path = getattr(error, "path", None) or tree.path_of(session_id)
        yield Finding(Kind.UNREADABLE, path, str(error), session_id=session_id)


def check_tree(
    tree: Tree, *, repair: bool, on_refusal: Callable[[AgentrunError], None] = to_nobody
) -> Iterator[Finding]:
    """What lies among the account's sessions and is none: left by a crash, or put there by somebody.

    With `repair`, an interrupted removal of a session is finished; that this was refused goes to `on_refusal`.
    """
    strangers = tree.strangers()
    is_finished = repair and _is_done(tree.finish_removals, on_refusal)
    for path, name in strangers:
        if name.startswith(layout.REMOVED_PREFIX):
            said = "is what is left of a session that was removed"
            yield Finding(Kind.LEFTOVER, path, said, is_repaired=is_finished)
        elif name.startswith(layout.UNFINISHED_PREFIX):
            yield Finding(Kind.LEFTOVER, path, "was being made when its writer ended; nothing needs it")
        else:
            yield Finding(Kind.ORPHAN, path, "is nothing that agentrun made")
    activity = tree.activity()
    if activity is not None:
        yield from _obstacles(activity.account)
    fault = activity.fault() if activity is not None else None
    if activity is not None and fault is not None:
        is_aside = repair and _is_done(activity.set_aside, on_refusal)
        said = f"{fault}: which session changed last is told by the sessions, which takes longer"
        yield Finding(Kind.UNREADABLE, activity.account.at(layout.ACTIVITY), said, is_repaired=is_aside)


def _obstacles(account: Directory) -> Iterator[Finding]:
    """What lies in the place of what the sessions share, and cannot be opened."""
    for name in (layout.RESOURCES, layout.SHARED):
        try:
            directory = account.open(name)
        except NotFound:
            continue
        except TooManyOpen:
            raise
        except AgentrunError as error:
            yield Finding(Kind.UNREADABLE, account.at(name), str(error))
            continue
        # A claim that cannot be read holds its resource, and nobody finds out for whom.
        for each in sorted(directory.names()) if name == layout.RESOURCES else ():
            try:
                directory.read(each)
            except TooManyOpen:
                raise
            except AgentrunError as error:
                yield Finding(Kind.UNREADABLE, directory.at(each), str(error))


def _is_done(step: Callable[[], object], on_refusal: Callable[[AgentrunError], None]) -> bool:
    try:
        step()
    except AgentrunError as error:
        on_refusal(error)
        return False
    return True
