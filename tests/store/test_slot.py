"""Which run has the slot of a session, or gets it next, whatever became of the file that says so.

Covers A47, B5, B25, promise 4.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrun.records.finding import Kind
from agentrun.store.check import check_session
from agentrun.store.redo import writing
from agentrun.store.sessions import SessionDir
from agentrun.store.tree import Tree
from agentrun.testing import trees
from agentrun.testing.trees import Executor


def _active(session: SessionDir) -> Path:
    return Path(session.directory.path, "active")


def _the_first_has_ended(session: SessionDir) -> None:
    executor = Executor(session, "run-1")
    trees.cancel(session, "run-1")
    executor.wind_down()


def _its_end_was_cut_short(session: SessionDir) -> None:
    """A crash between the slot that is freed and the next run that is given it."""
    _the_first_has_ended(session)
    _active(session).unlink()


def _nothing_is_wrong(session: SessionDir) -> None:
    _the_first_has_ended(session)


def _it_names_no_run(session: SessionDir) -> None:
    _the_first_has_ended(session)
    _active(session).write_text("run-99\n")


def _it_is_gone_while_one_goes_on(session: SessionDir) -> None:
    Executor(session, "run-1").die()
    _active(session).unlink()


def _it_names_one_that_waits_while_one_goes_on(session: SessionDir) -> None:
    Executor(session, "run-1").die()
    _active(session).write_text("run-2\n")


class Case(NamedTuple):
    """What became of the slot, whose turn it is for those who only look, and for whoever writes next."""

    broken: Callable[[SessionDir], None]
    front: str
    holder: str
    is_found: bool = True


CASES = [
    Case(_nothing_is_wrong, "run-2", "run-2", is_found=False),
    Case(_its_end_was_cut_short, "run-2", "run-2"),
    Case(_it_names_no_run, "run-2", "run-2"),
    Case(_it_is_gone_while_one_goes_on, "run-1", "run-1"),
    Case(_it_names_one_that_waits_while_one_goes_on, "run-2", "run-1"),
]


@pytest.fixture
def queue(session: SessionDir) -> SessionDir:
    """Three runs, of which two wait for the first."""
    for text in ("first", "second", "third"):
        trees.accept(session, text)
    return session


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.broken.__name__)
def test_the_run_whose_turn_it_is_is_the_same_for_all(tree: Tree, queue: SessionDir, case: Case) -> None:
    case.broken(queue)
    # Never simply the newest: what is meant for the one whose turn it is would stop the one behind it.
    assert queue.front() == case.front
    waiting = [queue.run(run_id).view() for run_id in ("run-2", "run-3")]
    assert [view.unattended for view in waiting] == [case.front == "run-2", False]
    assert any(finding.kind is Kind.SLOT for finding in check_session(tree, "s1", repair=False)) is case.is_found
    with writing(queue):
        assert (queue.active(), queue.front()) == (case.holder, case.holder)
    assert list(check_session(tree, "s1", repair=False)) == []


def test_without_any_run_nobody_has_the_turn(session: SessionDir) -> None:
    assert (session.active(), session.front()) == (None, None)
    _active(session).write_text("run-1\n")
    assert (session.active(), session.front()) == (None, None)
    assert trees.accept(session).run_id == session.active() == "run-1"
