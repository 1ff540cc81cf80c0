"""One of several processes that append to the same place: `KIND PLACE NAME`. It says how long each one waited.

`agentrun` writes into a run's log under the session's lock, as everyone may who is no executor (operation.late_result
is recorded whatever the run does), `inputs` steers a run of another session; `sqlite` inserts in one transaction;
`openai_agents` adds items to one session; `raw` appends to a file of its own, and nobody is in its way.
"""

import asyncio
import os
import sqlite3
import sys
import time

from serving import serve

kind, place, name = sys.argv[1:]


def agentrun():
    from agentrun.states import EventType
    from agentrun.store.redo import recording
    from agentrun.store.tree import Tree

    session = Tree(place).session("crowd")
    run_dir = session.run("run-1")

    def append(number: int) -> None:
        with recording(session) as writer:
            payload = {"operationId": "op-0", "status": "succeeded", "by": name, "number": number}
            run_dir.append_as_anyone(writer, EventType.OPERATION_LATE_RESULT, payload)

    return append


def inputs():
    from agentrun.store.tree import Tree
    from agentrun.testing.trees import add

    session = Tree(place).session("inputs")
    return lambda number: add(session, "run-1", "steer", f"{name} {number} " * 10)


def sqlite():
    connection = sqlite3.connect(f"{place}/crowd.db", isolation_level=None, timeout=60)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table if not exists events (seq integer primary key, line text)")

    def append(number: int) -> None:
        connection.execute("begin immediate")
        (last,) = connection.execute("select max(seq) from events").fetchone()
        connection.execute("insert into events values (?, ?)", ((last or 0) + 1, f"{name} {number}" + "x" * 150))
        connection.execute("commit")

    return append


def openai_agents():
    from agents import SQLiteSession

    session = SQLiteSession("session-1", f"{place}/agents.db")
    loop = asyncio.new_event_loop()

    def append(number: int) -> None:
        for attempt in range(20):
            try:
                loop.run_until_complete(session.add_items([{"role": "user", "content": f"{name} {number}" * 10}]))
            except sqlite3.OperationalError:
                if attempt == 19:
                    raise
            else:
                return

    return append


def raw():
    descriptor = os.open(f"{place}/{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(number: int) -> None:
        os.write(descriptor, (f"{name} {number}" + "x" * 250 + "\n").encode())
        os.fdatasync(descriptor)

    return append


append = {"raw": raw, "agentrun": agentrun, "inputs": inputs, "sqlite": sqlite, "openai_agents": openai_agents}[kind]()


def write(begin: float, seconds: float, pause: float) -> list[float]:
    """Appends from the moment `begin` on, without a pause or in step with a clock."""
    taken: list[float] = []
    due = begin
    while True:
        now = time.time()
        if now < due:
            time.sleep(due - now)
        if time.time() >= begin + seconds:
            return taken
        start = time.perf_counter()
        append(len(taken))
        taken.append(time.perf_counter() - start)
        due += pause


serve(write=write, ready=lambda: append(-1))
