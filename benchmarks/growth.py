"""What 100,000 sessions, or 10,000 runs of one session, cost the next one.

A session is made, and a prompt is sent, executed with one model request and published, all durable, without starting a
process for it: in a tree that is nearly empty and in one of 100,000 sessions; as a session's first run, as its second
and as its 10,000th.

A first run has nobody before it: any other is preceded by a look at whether the one before it was published, the same
after one as after 9,999.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import fixtures
from frame import Reach, Size, in_turns, ratio, reach_table, run, times_table
from workers import Worker


def measure(size: Size) -> str:
    many_root, many = fixtures.many_sessions(size, 100_000)
    runs_root, runs = fixtures.many_runs(size)
    each, rounds = size.of(5, 1), size.of(15, 1)
    first, later = "in an empty tree", f"in a tree of {many:,} sessions"
    first_run, second_run, later_run = "as the first run", "as the second run", f"as run {runs:,}"
    with ExitStack() as stack:
        empty = stack.enter_context(Worker("growth", size.folder / "empty", fixtures.ACCOUNT))
        full = stack.enter_context(Worker("growth", many_root, fixtures.ACCOUNT))
        busy = stack.enter_context(Worker("growth", runs_root, fixtures.ACCOUNT))
        sessions = in_turns(
            {first: partial(empty.call, "new_session", each), later: partial(full.call, "new_session", each)}, rounds
        )
        sent = in_turns(
            {
                first_run: partial(empty.call, "run_in_new_session", each, 0),
                second_run: partial(empty.call, "run_in_new_session", each, 1),
                later_run: partial(busy.call, "next_run", "busy", each),
            },
            rounds,
        )
    reaches = [
        Reach(f"a session and its first run {later}, x {first}", ratio(sessions, later, first), 1.1),
        Reach(f"a run {later_run}, x {first_run}", ratio(sent, later_run, first_run), 1.1),
        Reach(f"a run {later_run}, x {second_run}", ratio(sent, later_run, second_run), 1.1),
    ]
    texts = [f"A session and its first run:\n\n{times_table(sessions, first)}"]
    texts.append(f"A run:\n\n{times_table(sent, first_run)}")
    return "\n\n".join([*texts, reach_table(reaches)])


if __name__ == "__main__":
    run("Growth", measure, __doc__)
