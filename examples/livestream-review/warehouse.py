"""The shop's little warehouse: the CSV files under `data/`, as SQL tables that can only be read.

The tables are loaded into memory for each query. A few thousand rows take some 20 ms, and nothing has to be
cached, locked or cleaned up between runs.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"

# The columns of each CSV file and their SQLite types. `make_data.py` writes exactly these.
TABLES: dict[str, dict[str, str]] = {
    "orders": {
        "order_id": "TEXT",
        "date": "TEXT",
        "time": "TEXT",
        "minute": "TEXT",
        "segment": "TEXT",
        "host": "TEXT",
        "product_id": "TEXT",
        "product": "TEXT",
        "category": "TEXT",
        "launched": "TEXT",
        "quantity": "INTEGER",
        "unit_price": "REAL",
        "coupon": "TEXT",
        "discount": "REAL",
        "amount": "REAL",
        "status": "TEXT",
        "reason": "TEXT",
    },
    "traffic": {
        "date": "TEXT",
        "minute": "TEXT",
        "source": "TEXT",
        "viewers": "INTEGER",
        "joins": "INTEGER",
        "card_clicks": "INTEGER",
        "add_to_cart": "INTEGER",
    },
    "stock": {
        "date": "TEXT",
        "product_id": "TEXT",
        "product": "TEXT",
        "launched": "TEXT",
        "stock_before": "INTEGER",
        "sold": "INTEGER",
        "safety_stock": "INTEGER",
        "sold_out_at": "TEXT",
        "restock_date": "TEXT",
    },
}

# What a statement may do. Everything else (INSERT, DROP, ATTACH, PRAGMA, ...) is refused by SQLite itself
# while it compiles the statement, so no list of forbidden words has to be complete.
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def open_warehouse(tables: Iterable[str]) -> sqlite3.Connection:
    """A connection that sees `tables` and cannot change anything.

    Raises `FileNotFoundError` if the data has not been generated, `ValueError` if a file has other columns
    than `TABLES` says.
    """
    connection = sqlite3.connect(":memory:")
    for table in tables:
        _load(connection, table)
    connection.commit()
    connection.set_authorizer(_only_reading)
    return connection


def _load(connection: sqlite3.Connection, table: str) -> None:
    columns = TABLES[table]
    declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    places = ", ".join("?" for _ in columns)
    connection.execute(f"CREATE TABLE {table} ({declared})")
    with (DATA / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header != list(columns):
            raise ValueError(f"data/{table}.csv has the columns {header}, expected {list(columns)}")
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _only_reading(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY
