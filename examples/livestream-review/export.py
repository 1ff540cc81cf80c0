"""The export tool: starts an export job at the warehouse and waits for it.

    echo '{"sql": "SELECT * FROM stock"}' | AGENTRUN_IDEMPOTENCY_KEY=demo python3 export.py 3>&1

The job is a file in `exports/`; it is over at its `readyAt`, whether anybody waits for it or not. That
makes it a remote job: killing this tool ends the waiting, not the export.

This tool has neither a probe nor a cancel command. When a run is cancelled while it waits, agentrun therefore
knows the job's id but not how the job ended, and lists it as unresolved.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from warehouse import HERE, TABLES, open_warehouse

EXPORTS = HERE / "exports"
JOB_SECONDS = 60.0
REMOTE_ID_FD = 3  # agentrun stores a {"remoteId": ...} line on this descriptor at once


def main() -> None:
    sql = _sql(sys.stdin.read())
    rows = _count(sql)
    remote_id = _remote_id(sql)
    # First the id, then the job. Killed in between, agentrun knows of a job that never began, which anybody
    # can check; the other way round there would be a job that nobody knows of.
    _announce(remote_id)
    job = _submit(remote_id, sql, rows)
    _wait_until(job["readyAt"])
    print(json.dumps({"remoteId": remote_id, "status": "succeeded", "rows": job["rows"]}))


def _sql(text: str) -> str:
    try:
        sql = json.loads(text)["sql"]
    except (ValueError, KeyError, TypeError) as error:
        _fail(f'expected {{"sql": "SELECT ..."}} on stdin: {error!r}', 2)
    if not isinstance(sql, str):
        _fail("sql must be text", 2)
    return sql


def _count(sql: str) -> int:
    try:
        with closing(open_warehouse(TABLES)) as connection:
            return sum(1 for _ in connection.execute(sql))
    except (sqlite3.Error, sqlite3.Warning) as error:
        _fail(f"the export was not started: {error}", 1)
    except (OSError, ValueError) as error:
        _fail(f"the export was not started, no warehouse: {error}", 1)


def _remote_id(sql: str) -> str:
    """The same action has the same key over retries and takeovers, and so gets the same job.

    The root belongs to it because sessions of two roots may have the same name.
    """
    key = os.environ.get("AGENTRUN_IDEMPOTENCY_KEY") or f"by hand: {sql}"
    scope = os.environ.get("AGENTRUN_ROOT", "")
    return "export-" + hashlib.sha256(f"{scope}\n{key}".encode()).hexdigest()[:12]


def _announce(remote_id: str) -> None:
    line = json.dumps({"remoteId": remote_id}) + "\n"
    try:
        os.write(REMOTE_ID_FD, line.encode())
    except OSError:
        print(f"started by hand, nobody listens on descriptor {REMOTE_ID_FD}: {line}", end="", file=sys.stderr)


def _submit(remote_id: str, sql: str, rows: int) -> dict[str, Any]:
    """Puts the job into the queue, or finds the one that an earlier attempt put there."""
    EXPORTS.mkdir(exist_ok=True)
    path = EXPORTS / f"{remote_id}.json"
    job = {"remoteId": remote_id, "sql": sql, "rows": rows, "readyAt": time.time() + JOB_SECONDS}
    _create_whole(path, json.dumps(job, indent=2) + "\n")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _create_whole(path: Path, text: str) -> None:
    """Creates `path` with all of `text`, or leaves the file that is there: linking refuses a taken name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _wait_until(ready_at: float) -> None:
    time.sleep(max(0.0, ready_at - time.time()))


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
