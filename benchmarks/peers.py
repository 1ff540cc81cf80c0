"""What agentrun is measured against, each in an environment of its own under `.peers/`, by name and version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from frame import HERE, Size, environment

FOLDER = HERE / ".peers"
SECONDS = 300

# Why something is not there, by name: it is told in the results.
missing: dict[str, str] = {}


class Peer(NamedTuple):
    """Packages that make one environment; those of npm have a version behind their last `@`."""

    name: str
    packages: tuple[str, ...]
    is_node: bool = False


OPENAI_AGENTS = Peer("openai-agents", ("openai-agents==0.24.0",))
LANGGRAPH = Peer("langgraph", ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"))
DBOS = Peer("dbos", ("dbos==3.4.0",))
LLM = Peer("llm", ("llm==0.36",))
CODEX = Peer("codex", ("@openai/codex@0.171.0",), is_node=True)
ACPX = Peer("acpx", ("acpx@0.19.1",), is_node=True)
OPENCODE = Peer("opencode", ("opencode-ai@1.18.33",), is_node=True)
WATCHFILES = Peer("watchfiles", ("watchfiles==1.3.0",))


def python(peer: Peer, size: Size) -> Path | None:
    """The interpreter of a peer's environment, which is made if it is missing; None if that fails.

    Where it only matters that a script runs, nothing is installed.
    """
    folder = _made(peer, size)
    return folder / "bin" / "python" if folder else None


def program(peer: Peer, name: str, size: Size) -> Path | None:
    """The command `name` of a peer, as `python`."""
    folder = _made(peer, size)
    if folder is None:
        return None
    return folder / ("node_modules/.bin" if peer.is_node else "bin") / name


def system_program(name: str) -> Path | None:
    """A command of the system; None if it is not installed."""
    found = shutil.which(name)
    if found is None:
        missing[name] = "it is not installed"
    return Path(found) if found else None


def missing_text() -> str:
    """What could not be measured against and why, for the results; empty if all was there."""
    told = "; ".join(f"{name} ({why})" for name, why in missing.items())
    return f"Not measured against: {told}." if told else ""


def _made(peer: Peer, size: Size) -> Path | None:
    folder = FOLDER / peer.name
    # Written last: an installation that was interrupted starts again.
    stamp = folder / "made-of"
    if stamp.exists() and stamp.read_text("utf-8").split() == list(peer.packages):
        return folder
    if size.is_small:
        missing[peer.name] = "it is not installed"
        return None
    try:
        (_install_node if peer.is_node else _install_python)(peer, folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        missing[peer.name] = f"it could not be installed: {said.strip().splitlines()[-1][:200]}"
        return None
    stamp.write_text("\n".join(peer.packages), "utf-8")
    return folder


def _install_python(peer: Peer, folder: Path) -> None:
    # Not a shim: that would be measured too.
    base = getattr(sys, "_base_executable", sys.executable)
    _call(base, "-m", "venv", "--clear", str(folder))
    _call(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.packages)


def _install_node(peer: Peer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _call("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *peer.packages)


def _call(*argv: str) -> None:
    subprocess.run(argv, env=environment(), check=True, capture_output=True, text=True, timeout=SECONDS)
