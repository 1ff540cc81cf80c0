"""Adds an item to a session of openai-agents: `FOLDER`."""

import asyncio
import sys

from agents import SQLiteSession
from serving import seconds_of, serve

session = SQLiteSession("session-1", f"{sys.argv[1]}/agents.db")
loop = asyncio.new_event_loop()


def add(number: int) -> None:
    item = {"role": "user", "content": f"export-{number:08} of the week is under way, and nothing else is known of it"}
    loop.run_until_complete(session.add_items([item]))


serve(append=lambda count: seconds_of(add, count))
