"""A run of 100 turns: a model that is scripted asks for a tool that does nothing, each step on disk before the next.

agentrun makes each model request last before it is sent, and the results with the next request; the sum of its syncs
is the time that went by inside of fsync(2) and fdatasync(2) of the same run. langgraph keeps a checkpoint after each of
its steps, dbos the result of each, openai-agents the items of each turn in SQLiteSession.

A turn is five events in three holds of the session's lock, and one sync. What a run takes beside its syncs is the
interpreter for four fifths and the kernel for one. Of the instructions of the interpreter, some 16,000 a turn, a third
makes the events and folds them into the run, and a little more fold them into the agent's turns and make the next
request of those; files and locks take a tenth, the executor an eighth, the event loop a tenth. Each event is folded
once for either and never read again. None of it grows with the number of turns but the copying of a list, that of the
conversation, into each request. So what the figure comes to is for the disk to say: a sync that takes as long as those
instructions makes it two, a faster one makes it more.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from functools import partial

import peers
from frame import Reach, Size, in_turns, ratio, reach_table, run, times_table
from workers import Worker

TURNS = 100
OTHERS = {
    "langgraph, SqliteSaver": (peers.LANGGRAPH, "turns_langgraph"),
    "dbos workflow": (peers.DBOS, "turns_dbos"),
    "openai-agents, SQLiteSession": (peers.OPENAI_AGENTS, "turns_openai_agents"),
}


def measure(size: Size) -> str:
    turns = size.of(TURNS, 5)
    told: list[tuple[float, float, int]] = []
    with ExitStack() as stack:
        ours = stack.enter_context(Worker("turns_agentrun", size.folder))

        def once() -> list[float]:
            told.append(ours.call("run", turns))
            return [told[-1][0]]

        ways = {"agentrun": once}
        for name, (peer, script) in OTHERS.items():
            python = peers.python(peer, size)
            if python:
                worker = stack.enter_context(Worker(script, size.folder, python=python))
                ways[name] = partial(worker.call, "run", turns)
        taken = in_turns(ways, size.of(7, 1))
    shares = [total / synced for total, synced, _ in told[1:]]
    reaches = [Reach("agentrun, x the sum of its syncs", statistics.median(shares), 2)]
    reaches += [Reach(f"x {name}", ratio(taken, "agentrun", name), 1) for name in ways if name != "agentrun"]
    count = f"agentrun synced {told[-1][2]} times a run."
    return "\n\n".join(
        filter(None, [times_table(taken, "agentrun"), count, reach_table(reaches), peers.missing_text()])
    )


if __name__ == "__main__":
    run("A run of 100 turns", measure, __doc__)
