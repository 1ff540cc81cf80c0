"""Reads as long a conversation with openai-agents: `LOG FOLDER`. It has no way to a page in the middle."""

import asyncio
import json
import sys

from agents import SQLiteSession
from serving import seconds_of, serve

loop = asyncio.new_event_loop()
session = SQLiteSession("long", f"{sys.argv[2]}/agents.db")
count = 0
with open(sys.argv[1], encoding="utf-8") as file:
    while lines := file.readlines(1 << 24):
        count += len(lines)
        items = [{"role": "user", "content": json.loads(line)["text"]} for line in lines]
        loop.run_until_complete(session.add_items(items))


def last(_: int) -> None:
    assert len(loop.run_until_complete(session.get_items(20))) == 20


def load(_: int) -> None:
    assert len(loop.run_until_complete(session.get_items())) == count


serve(last=lambda times: seconds_of(last, times), load=lambda times: seconds_of(load, times))
