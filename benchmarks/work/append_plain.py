"""Appends the same lines with write(2), and the same fields as rows of sqlite: `FOLDER`."""

import os
import sqlite3
import sys

from events import a_line
from serving import seconds_of, serve

folder = sys.argv[1]
fd = os.open(f"{folder}/raw", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
LINE = a_line(123456)


def database(name: str, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{folder}/{name}", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute(f"pragma synchronous={synchronous}")
    connection.execute("create table events (run text, seq integer, line text, primary key (run, seq)) without rowid")
    return connection


full, normal = database("full", "full"), database("normal", "normal")
counts = {full: 0, normal: 0}


def insert(connection: sqlite3.Connection) -> None:
    """As agentrun does it: the next number is read, under the lock under which it is used."""
    connection.execute("begin immediate")
    (last,) = connection.execute("select max(seq) from events where run = 'run-1'").fetchone()
    connection.execute("insert into events values ('run-1', ?, ?)", ((last or 0) + 1, LINE.decode()))
    connection.execute("commit")


def raw_synced(number: int) -> None:
    os.write(fd, LINE)
    os.fdatasync(fd)


# A file that has its length and its blocks already.
inside = os.open(f"{folder}/inside", os.O_RDWR | os.O_CREAT, 0o600)
os.write(inside, b" " * len(LINE) * 1000)
os.fsync(inside)


def raw_inside(number: int) -> None:
    os.pwrite(inside, LINE, number % 1000 * len(LINE))
    os.fdatasync(inside)


serve(
    inside=lambda count: seconds_of(raw_inside, count),
    raw=lambda count: seconds_of(raw_synced, count),
    raw_unsynced=lambda count: seconds_of(lambda number: os.write(fd, LINE), count),
    full=lambda count: seconds_of(lambda number: insert(full), count),
    normal=lambda count: seconds_of(lambda number: insert(normal), count),
)
