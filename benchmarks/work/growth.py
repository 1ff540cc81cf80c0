"""Makes sessions and runs in a tree, each through to its published end: `ROOT ACCOUNT`."""

import sys

from serving import seconds_of, serve

from agentrun.store.tree import Tree
from agentrun.testing.trees import completed

tree = Tree(sys.argv[1], sys.argv[2])


def first_run(_: int) -> None:
    completed(tree.create_session())


def next_run(session_id: str, times: int) -> list[float]:
    # Found again each time, as by a new process.
    return seconds_of(lambda _: completed(tree.find(session_id)), times)


def run_in_new_session(times: int, earlier: int) -> list[float]:
    sessions = [tree.create_session() for _ in range(times)]
    for session in sessions * earlier:
        completed(session)
    return seconds_of(lambda number: completed(tree.find(sessions[number].session_id)), times)


serve(
    new_session=lambda times: seconds_of(first_run, times),
    next_run=next_run,
    run_in_new_session=run_in_new_session,
)
