"""The tool's probe: what became of an export?

A key that the service does not know: nothing happened, and with the same key nothing can happen twice. No answer from
the service: exit 1, which agentrun takes for "nobody knows".
"""

from __future__ import annotations

import json
import sys

from client import Unreachable, find

WORDS = {"running": "running", "succeeded": "succeeded", "cancelled": "failed"}


def main() -> int:
    asked = json.load(sys.stdin)
    try:
        job = find(asked["remoteId"], asked["idempotencyKey"])
    except Unreachable as error:
        print(f"no answer from the export service: {error}", file=sys.stderr)
        return 1
    answer = {"status": WORDS[job["status"]], "result": job["result"]} if job else {"status": "failed"}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
