"""Programs from npm for tests: where `make node-tools` has put them, else where the PATH finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

NODE_TOOLS = Path(__file__).resolve().parents[2] / ".node-tools"


def node_program(name: str, package: str) -> str:
    """The path of the program `name` of the npm package `package`; skips the test that asks if there is none."""
    import pytest

    found = shutil.which(name, path=str(NODE_TOOLS / "node_modules" / ".bin")) or shutil.which(name)
    if found is None or shutil.which("node") is None:
        pytest.skip(f"needs {name} of the npm package {package}: install it with make node-tools")
    return found
