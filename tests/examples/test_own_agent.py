"""The example of an agent of one's own: as a program, and as a plug-in of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent.parent / "examples" / "own-agent"

pytestmark = pytest.mark.slow


def run(*arguments: str, root: Path, path: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUN_")}
    environment |= {"AGENTRUN_ROOT": str(root), "HOME": str(root)}
    environment["PYTHONPATH"] = os.pathsep.join(part for part in (path, environment.get("PYTHONPATH", "")) if part)
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_as_a_program(tmp_path: Path) -> None:
    said = run(str(HERE / "own_agent.py"), root=tmp_path)
    assert "5 words" in said
    assert len(list(tmp_path.glob("accounts/*/sessions/*/runs/run-1/report.md"))) == 1


def test_as_a_plug_in(tmp_path: Path) -> None:
    """Installed as pip would: the module and its entry points, taken from the example's own pyproject.toml."""
    declared = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["entry-points"]
    info = tmp_path / "site" / "own_agent-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-agent\nVersion: 1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in declared.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "site" / "own_agent.py").write_bytes((HERE / "own_agent.py").read_bytes())
    (tmp_path / "agentrun.toml").write_text(
        '[agents.counter]\nkind = "word-counter"\nsettings = { unit = "of them" }\n'
    )
    site = str(tmp_path / "site")
    session = run("-m", "agentrun", "new", root=tmp_path, path=site).strip()
    assert "3 of them" in run("-m", "agentrun", "send", session, "one two three", root=tmp_path, path=site)
    shown = json.loads(run("-m", "agentrun", "show", f"{session}/1", "--json", root=tmp_path, path=site))
    assert shown["run"]["agent"] == "counter"
