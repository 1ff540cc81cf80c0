"""Lists as many sessions, each with its last run, from sqlite with an index: `FOLDER COUNT`."""

import sqlite3
import sys

from serving import seconds_of, serve

connection = sqlite3.connect(f"{sys.argv[1]}/sessions-{sys.argv[2]}.db", isolation_level=None)
connection.execute("create table sessions (id text primary key, title text, changed text)")
connection.execute("create index by_change on sessions (changed)")
connection.execute("create table runs (session text, number integer, status text, primary key (session, number))")
connection.execute("begin")
for number in range(int(sys.argv[2])):
    name = f"session-{number:08}"
    connection.execute("insert into sessions values (?, ?, ?)", (name, "the evening's figures", f"{number:012}"))
    connection.execute("insert into runs values (?, 1, 'completed')", (name,))
connection.execute("commit")

JOINED = """\
select id, title, changed, (select status from runs where session = id order by number desc limit 1)
from sessions order by changed desc
"""

serve(
    newest=lambda times: seconds_of(lambda _: connection.execute(JOINED + " limit 20").fetchall(), times),
    everything=lambda times: seconds_of(lambda _: connection.execute(JOINED).fetchall(), times),
)
