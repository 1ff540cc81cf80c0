"""The tool: starts an export and waits for it.

An answer that got lost says nothing about the job. So the tool asks again, with the key that agentrun gave it: the
service takes the same key for the same job. "Failed for now" (exit 75) would say that nothing has happened.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

from client import Unreachable, ask

REMOTE_ID_FD = 3  # agentrun stores a {"remoteId": ...} line on this descriptor at once
FAILED_FOR_NOW = 75


def main() -> int:
    name = json.load(sys.stdin)["name"]
    try:
        job = started(os.environ["AGENTRUN_IDEMPOTENCY_KEY"], name)
    except Unreachable as error:
        print(f"there is no export service: {error}", file=sys.stderr)
        return FAILED_FOR_NOW
    os.write(REMOTE_ID_FD, json.dumps({"remoteId": job["id"]}).encode() + b"\n")
    while job is not None and job["status"] == "running":
        time.sleep(0.1)
        with suppress(Unreachable):
            job = ask(f"/jobs/{job['id']}")
    if job is None or job["status"] != "succeeded":
        print("the export was stopped", file=sys.stderr)
        return 1
    print(job["result"])
    return 0


def started(key: str, name: str) -> dict[str, Any] | None:
    """The job of that key. Raises Unreachable if no request has ever got through."""
    is_sent = False
    while True:
        try:
            return ask("/jobs", {"key": key, "name": name}, post=True)
        except Unreachable as error:
            is_sent = is_sent or error.was_sent
            if not is_sent:
                raise
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
