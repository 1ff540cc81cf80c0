"""Reads the same conversation from sqlite by its key: `LOG FOLDER`. The rows hold the lines as they are."""

import json
import sqlite3
import sys

from serving import seconds_of, serve

connection = sqlite3.connect(f"{sys.argv[2]}/messages.db", isolation_level=None)
connection.execute("pragma journal_mode=wal")
connection.execute("create table messages (session text, seq integer, line text, primary key (session, seq))")
with open(sys.argv[1], encoding="utf-8") as file:
    connection.execute("begin")
    rows = (("long", seq, line) for seq, line in enumerate(file, 1))
    connection.executemany("insert into messages values (?, ?, ?)", rows)
    connection.execute("commit")
(count,) = connection.execute("select count(*) from messages").fetchone()


def rows_of(where: str, *values: object) -> list[dict[str, object]]:
    found = connection.execute(f"select line from messages where session = 'long' {where}", values)
    return [json.loads(line) for (line,) in found]


def page(number: int) -> None:
    assert len(rows_of("and seq >= ? order by seq limit 50", count // 2 + number)) == 50


def load(_: int) -> None:
    lines = connection.execute("select line from messages where session = 'long' order by seq")
    assert sum(1 for (line,) in lines if json.loads(line)) == count


def search(text: str, times: int) -> list[float]:
    def once(_: int) -> None:
        found = connection.execute("select seq from messages where line like ?", (f"%{text}%",)).fetchall()
        assert not found

    return seconds_of(once, times)


serve(
    last=lambda times: seconds_of(lambda _: rows_of("order by seq desc limit 20"), times),
    page=lambda times: seconds_of(page, times),
    load=lambda times: seconds_of(load, times),
    search=search,
)
