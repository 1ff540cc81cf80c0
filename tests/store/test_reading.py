"""A run that is looked at again and again: each look shows what a new one would, for the price of what is new.

Covers A15, B8, promises 2 and 16.
"""

import random
import sys
from pathlib import Path
from types import FrameType

import pytest

from agentrun.records.event import Event
from agentrun.records.run import fold_run
from agentrun.states import EventType
from agentrun.store.redo import writing
from agentrun.store.runs import RunDir
from agentrun.store.tree import Tree
from agentrun.testing.trees import Executor, accept


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    session = Tree(str(tmp_path), "ann").create_session(session_id="watched")
    made = Executor(session, accept(session).run_id)
    made.append(EventType.MODEL_REQUEST_STARTED, operationId="op-0", model="m", attempt=1)
    return made


def watched(executor: Executor) -> RunDir:
    return executor.session.another().run("run-1")


def decoded_by(look: RunDir) -> int:
    """How many events a look decodes."""
    count = 0

    def profile(frame: FrameType, what: str, _: object) -> None:
        nonlocal count
        count += what == "call" and frame.f_code is Event.from_doc.__func__.__code__  # type: ignore[attr-defined]

    sys.setprofile(profile)
    try:
        look.load()
    finally:
        sys.setprofile(None)
    return count


def test_a_look_at_a_run_decodes_only_what_has_come_since_the_last(executor: Executor) -> None:
    look = watched(executor)
    for number in range(30):
        executor.append(EventType.TOOL_REMOTE_ID, operationId="op-0", remoteId=f"r-{number}")
    assert decoded_by(look) > 10
    assert decoded_by(look) == 0
    executor.append(EventType.TOOL_REMOTE_ID, operationId="op-0", remoteId="new")
    assert decoded_by(look) == 1
    assert look.load() == watched(executor).load()
    assert look.load().open_operations[0].remote_id == "new"


def test_any_number_of_events_behind_the_snapshot_are_folded(executor: Executor) -> None:
    run_dir = executor.run_dir
    for number in range(120):
        executor.append(EventType.TOOL_REMOTE_ID, operationId="op-0", remoteId=f"r-{number}")
        if number == 20:
            with writing(executor.session) as writer:
                run_dir.rewrite_snapshot(writer)
        snapshot = watched(executor).snapshot()
        assert watched(executor).load() == fold_run(run_dir.all_events())
    assert snapshot is not None
    assert run_dir.events.last_seq() - snapshot.applied_seq == 99


def test_a_look_shows_what_a_new_one_shows_whatever_happened_to_the_log_in_between(executor: Executor) -> None:
    """Promise 2: torn ends that come and go, events that cannot be read, a snapshot that is newer or lost."""
    chance = random.Random(3)
    look = watched(executor)
    log = Path(executor.run_dir.events.path)
    for number in range(120):
        what = chance.randrange(8)
        if what == 0:
            with log.open("ab") as file:
                file.write(b'{"sessionId":"watched","runId":"run-1","seq":' + b"9" * chance.randrange(200))
        elif what == 1 and number > 60:
            with log.open("ab") as file:
                file.write(b"damaged\n")
        elif what == 2:
            (log.parent / "run.json").unlink(missing_ok=True)
        else:
            executor.append(EventType.TOOL_REMOTE_ID, operationId="op-0", remoteId=f"r-{number}")
        if chance.random() < 0.7:
            assert look.load() == watched(executor).load()
        assert number > 60 or not look.events.damage
    assert look.events.damage
