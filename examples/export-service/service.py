"""A small export service: jobs that run by themselves, whoever started them.

    python3 service.py --port 8765

    POST /jobs           {"key": "...", "name": "orders"}   starts a job; the same key again is the same job
    GET  /jobs/ID        {"id": ..., "status": "running|succeeded|cancelled", "result": ...}
    GET  /jobs?key=KEY   the same, for those who do not know the id
    POST /jobs/ID/cancel stops a job that is still running
    GET  /effects        what was asked for and what was really exported: `{"asked": [...], "effects": [...]}`

`--hold FILE`: as long as FILE exists, no job comes to its end. `--drop NAME`: the first answer about a job of that name
is lost on its way, after the job was started. It forgets everything when it ends.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Record = dict[str, Any]


class Exports:
    """All jobs, and what they did."""

    def __init__(self, seconds: float, hold: Path | None) -> None:
        self._seconds = seconds
        self._hold = hold
        self._lock = threading.Lock()
        self._jobs: dict[str, Record] = {}
        self._by_key: dict[str, Record] = {}
        self._asked: list[str] = []
        self._effects: list[str] = []

    def start(self, key: str, name: str) -> tuple[Record, bool]:
        """The job of that key, and whether it is new."""
        with self._lock:
            self._asked.append(name)
            if key in self._by_key:
                return dict(self._by_key[key]), False
            job = {"id": f"export-{len(self._jobs) + 1}", "name": name, "status": "running", "result": None}
            self._jobs[job["id"]] = self._by_key[key] = job
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        return dict(job), True

    def job(self, job_id: str) -> Record | None:
        with self._lock:
            return dict(self._jobs[job_id]) if job_id in self._jobs else None

    def job_of(self, key: str) -> Record | None:
        with self._lock:
            return dict(self._by_key[key]) if key in self._by_key else None

    def cancel(self, job_id: str) -> Record | None:
        with self._lock:
            if job_id not in self._jobs:
                return None
            job = self._jobs[job_id]
            if job["status"] == "running":
                job["status"] = "cancelled"
            return dict(job)

    def effects(self) -> dict[str, list[str]]:
        with self._lock:
            return {"asked": list(self._asked), "effects": list(self._effects)}

    def _work(self, job: Record) -> None:
        time.sleep(self._seconds)
        while self._hold is not None and self._hold.exists():
            time.sleep(0.02)
        with self._lock:
            # A cancel that came first has won; one that comes later finds it done.
            if job["status"] == "running":
                job |= {"status": "succeeded", "result": f"{job['name']}: 12 rows"}
                self._effects.append(job["name"])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    exports: Exports
    dropped: set[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/effects":
            self._answer(200, self.exports.effects())
        elif url.path == "/jobs":
            self._answer_job(self.exports.job_of(parse_qs(url.query).get("key", [""])[0]))
        else:
            self._answer_job(self.exports.job(url.path.removeprefix("/jobs/")))

    def do_POST(self) -> None:
        if self.path == "/jobs":
            self._start()
        elif self.path.endswith("/cancel"):
            self._answer_job(self.exports.cancel(self.path.removeprefix("/jobs/").removesuffix("/cancel")))
        else:
            self._answer(404, {"error": "no such place"})

    def _start(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        job, is_new = self.exports.start(asked["key"], asked["name"])
        if is_new and job["name"] in self.dropped:
            self.close_connection = True  # and not a word: the job runs, and nobody was told
            return
        self._answer_job(job)

    def _answer_job(self, job: Record | None) -> None:
        if job is None:
            self._answer(404, {"error": "no such job"})
        else:
            self._answer(200, job)

    def _answer(self, code: int, doc: Record) -> None:
        body = json.dumps(doc).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # whoever asked has gone; that changes nothing about the job
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A small export service.")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long a job takes")
    parser.add_argument("--hold", type=Path, help="no job ends as long as this file exists")
    parser.add_argument("--drop", action="append", default=[], help="lose the first answer about a job of this name")
    given = parser.parse_args()
    Handler.exports = Exports(given.seconds, given.hold)
    Handler.dropped = set(given.drop)
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
