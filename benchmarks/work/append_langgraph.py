"""Puts a checkpoint, or the writes of a task, with langgraph's SqliteSaver: `FOLDER`."""

import itertools
import sqlite3
import sys

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from serving import seconds_of, serve

saver = SqliteSaver(sqlite3.connect(f"{sys.argv[1]}/langgraph.db", check_same_thread=False))
saver.setup()
config = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def put(number: int) -> None:
    global config
    checkpoint = empty_checkpoint() | {"channel_values": {"text": f"export-{number:08}"}}
    config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {})


numbers = itertools.count()


def put_writes(_: int) -> None:
    # What was put once for a task of a checkpoint is passed over the next time.
    number = next(numbers)
    saver.put_writes(config, [("text", f"export-{number:08}")], f"task-{number}")


put(0)
serve(
    put=lambda count: seconds_of(put, count),
    put_writes=lambda count: seconds_of(put_writes, count),
)
