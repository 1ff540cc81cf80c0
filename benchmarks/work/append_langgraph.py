"""Puts a checkpoint, or the writes of a task, with langgraph's SqliteSaver: `FOLDER`."""

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


put(0)
serve(
    put=lambda count: seconds_of(put, count),
    put_writes=lambda count: seconds_of(
        lambda number: saver.put_writes(config, [("text", f"export-{number:08}")], f"task-{number}"), count
    ),
)
