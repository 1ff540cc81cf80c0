"""A root for all users of a machine, and commands that users of the kernel give there: no names that were only said."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import warm

CONFIG = """\
default_agent = "analyst"
[agents.analyst]
model = "scripted:script.json"
"""
SCRIPT = '{"turns": [{"ifContains": "ask", "ask": "Which week?"}, {"text": "The secret report."}]}'


class Shared:
    """A root for all users of a machine, made by its administrator, and commands of those users."""

    def __init__(self, base: Path) -> None:
        base.chmod(0o755)
        self.base = base
        self.root = base / "root"
        self.root.mkdir()
        self.root.chmod(0o755)
        (self.root / "accounts").mkdir()
        (self.root / "accounts").chmod(0o1777)
        for name, text in (("agentrun.toml", CONFIG), ("script.json", SCRIPT)):
            (base / name).write_text(text)
            (base / name).chmod(0o644)

    def run(self, user: int, *words: str) -> Any:
        """A command of `user`; who is that already becomes nobody else."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            "AGENTRUN_ROOT": str(self.root),
            "AGENTRUN_CONFIG": str(self.base / "agentrun.toml"),
        }
        if "PYTHONPATH" in os.environ:
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        other = None if user == os.geteuid() else user
        return warm.run(words, environment, timeout=90, cwd="/", user=other)

    def account(self, user: int) -> Path:
        return self.root / "accounts" / f"uid-{user}"


@contextmanager
def shared_root() -> Iterator[Shared]:
    # pytest's own places are closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Shared(Path(name))
