"""The tool's cancel: stops an export, and says whether that came in time."""

from __future__ import annotations

import json
import sys

from client import Unreachable, ask, find


def main() -> int:
    asked = json.load(sys.stdin)
    try:
        job = find(asked["remoteId"], asked["idempotencyKey"])
        if job is not None:
            job = ask(f"/jobs/{job['id']}/cancel", post=True)
    except Unreachable as error:
        print(f"no answer from the export service: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"status": job["status"], "result": job["result"]} if job else {"status": "failed"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
