"""Processes that do the measured work, each under the interpreter of its own environment: see `work/serving.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from frame import HERE, environment


class Worker:
    """A process that runs the script `name` of `work/` and does what it is asked, one thing after the other."""

    def __init__(self, name: str, *arguments: object, python: Path | str = sys.executable) -> None:
        argv = [str(python), str(HERE / "work" / f"{name}.py"), *map(str, arguments)]
        more = {"PYTHONPATH": str(HERE.parent)} if str(python) == sys.executable else {}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(**more), text=True
        )
        self.pid = self._process.pid
        self.result()

    def call(self, action: str, *arguments: object) -> Any:
        """Asks for one thing and waits for what it returns."""
        self.begin(action, *arguments)
        return self.result()

    def begin(self, action: str, *arguments: object) -> None:
        """Asks for one thing; `result` has to follow."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([action, *arguments]) + "\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """What came of it. Raises RuntimeError if the process has ended over it."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args[1]} ended with {self._process.wait()}")  # type: ignore[index]
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait(10)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
