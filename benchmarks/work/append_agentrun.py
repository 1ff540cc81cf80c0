"""Appends events with agentrun, durable or not: `ROOT HISTORY`."""

import sys

from events import Going
from serving import seconds_of, serve

going = Going(sys.argv[1], int(sys.argv[2]))

serve(
    append=lambda count: seconds_of(going.append, count),
    append_unsynced=lambda count: seconds_of(lambda number: going.append(number, durable=False), count),
)
