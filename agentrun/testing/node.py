"""Programs from npm for tests: where `make setup-all` has put them, else where the PATH finds them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Beside the interpreter that runs the tests.
NODE = Path(sys.prefix) / "node"


def node_program(name: str, package: str) -> str:
    """The path of the program `name` of the npm package `package`; skips the test that asks if there is none."""
    import pytest

    found = shutil.which(name, path=str(NODE / "node_modules" / ".bin")) or shutil.which(name)
    if found is None or shutil.which("node") is None:
        pytest.skip(f"needs {name} of the npm package {package}: install it with make setup-all")
    return found
