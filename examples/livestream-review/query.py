"""The query tools: one read-only SQL statement over the warehouse.

    echo '{"sql": "SELECT date, count(*) FROM orders GROUP BY date"}' | python3 query.py --tables orders

A tool of agentrun is any command: arguments as JSON on stdin, the result on stdout. Exit 0 = succeeded,
75 = failed for now (agentrun tries again within the tool's `retries`), anything else = failed, and why is on
stderr. The result is a Markdown table, which models read well and a report can quote as it is.

Two things that real warehouses do are played here on purpose:

* `--loading-once`: the first query of each run finds last night's load still running, and exits 75. The next
  attempt succeeds. A marker in the run's scratch directory tells the two apart.
* a slow query: `"sleep": 2` adds two seconds, and while the file named by `$LIVESTREAM_BUSY` exists, such a
  query goes on waiting. `play.py` uses it to speak to a run at a moment when a tool is surely running.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from warehouse import TABLES, open_warehouse

DEFAULT_LIMIT = 50
# A model that asks for everything gets a table it can still read; the note says what is missing.
LARGEST_LIMIT = 200
FAILED_FOR_NOW = 75  # EX_TEMPFAIL of sysexits.h
BUSY_POLL_SECONDS = 0.05


def main() -> None:
    options = _options()
    if options.loading_once and _first_attempt_of_this_run():
        _fail("the warehouse is still loading last night's orders; try again", FAILED_FOR_NOW)
    sql, limit, sleep = _arguments(sys.stdin.read())
    if sleep:
        _take_long(sleep)
    print(_query(sql, options.tables, limit))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run one read-only SQL query; arguments as JSON on stdin.")
    parser.add_argument("--tables", nargs="+", choices=sorted(TABLES), required=True)
    parser.add_argument("--loading-once", action="store_true", help="exit 75 on the first attempt of each run")
    return parser.parse_args()


def _arguments(text: str) -> tuple[str, int, float]:
    try:
        arguments = json.loads(text)
        sql = arguments["sql"]
        limit = min(int(arguments.get("limit", DEFAULT_LIMIT)), LARGEST_LIMIT)
        sleep = float(arguments.get("sleep", 0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _fail(f'expected {{"sql": "SELECT ...", "limit": 50}} on stdin: {error!r}', 2)
    if not isinstance(sql, str) or limit < 1 or sleep < 0:
        _fail("sql must be text, limit at least 1, sleep not negative", 2)
    return sql, limit, sleep


def _first_attempt_of_this_run() -> bool:
    """Whether nobody asked before in this run. Exclusive creation lets only one of several be first."""
    scratch = os.environ.get("AGENTRUN_SCRATCH")
    if not scratch:
        return False
    try:
        (Path(scratch) / "warehouse-was-loading").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _take_long(seconds: float) -> None:
    time.sleep(seconds)
    busy = os.environ.get("LIVESTREAM_BUSY")
    while busy and Path(busy).exists():
        time.sleep(BUSY_POLL_SECONDS)


def _query(sql: str, tables: Sequence[str], limit: int) -> str:
    try:
        with closing(open_warehouse(tables)) as connection:
            cursor = connection.execute(sql)
            rows = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        _fail(_explain(error, tables), 1)
    except (OSError, ValueError) as error:
        _fail(f"no warehouse: {error}\n  make it with: python3 make_data.py", 1)
    if cursor.description is None:
        _fail("refused: the statement returns no rows; send one SELECT", 2)
    names = [column[0] for column in cursor.description]
    return _table(names, rows[:limit]) + _note(len(rows), limit)


def _explain(error: Exception, tables: Sequence[str]) -> str:
    if str(error) in {"not authorized", "authorization denied"}:
        return "refused: the warehouse is read-only; send one SELECT (no INSERT, UPDATE, PRAGMA, ATTACH)"
    known = "; ".join(f"{table}({', '.join(TABLES[table])})" for table in tables)
    return f"the query failed: {error}\n  tables here: {known}"


def _note(found: int, limit: int) -> str:
    """An empty result and a cut one are said in words: neither may pass for a zero or for everything."""
    if found == 0:
        return "\n\n(no rows)"
    if found > limit:
        return f"\n\n(the first {limit} rows; there are more)"
    return ""


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [names, ["---"] * len(names), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
