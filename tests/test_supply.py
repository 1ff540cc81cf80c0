"""What agentrun brings along: bounded versions, a lock file that names every byte, and nobody called at import."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[1]
LOCK = PROJECT / "requirements-dev.lock"
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))

# Imports every module of the package; whatever reaches for the network or for another process ends it.
IMPORT_ALL = """
import pkgutil, sys
FORBIDDEN = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen",
             "os.exec", "os.fork", "os.posix_spawn", "os.system", "urllib.Request", "http.client.connect")
def watch(event, arguments):
    if event in FORBIDDEN:
        sys.stderr.write(f"{event} {arguments}")
        sys.exit(f"{event} {arguments}")
import agentrun
sys.addaudithook(watch)
# What needs an extra that is not here cannot be imported at all.
EXTRAS = {"openai", "anthropic", "mcp", "acp", "xllamacpp", "genai_prices", "pydantic"}
imported = 0
for module in pkgutil.walk_packages(agentrun.__path__, "agentrun."):
    if module.name.endswith("__main__"):
        continue
    try:
        __import__(module.name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
    imported += 1
print(imported)
"""


def declared() -> list[Requirement]:
    project = DECLARED["project"]
    lists = [project["dependencies"], DECLARED["build-system"]["requires"], *project["optional-dependencies"].values()]
    wanted = [Requirement(each) for names in lists for each in names]
    return [each for each in wanted if each.name != "agentrun"]


@pytest.mark.parametrize("wanted", declared(), ids=str)
def test_every_dependency_has_a_lower_and_an_upper_bound(wanted: Requirement) -> None:
    operators = {each.operator for each in wanted.specifier}
    assert ">=" in operators
    assert "<" in operators


def test_the_lock_names_every_byte_and_no_place() -> None:
    entries = _locked_lines()
    assert entries
    for name, lines in entries.items():
        assert re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.!+]+( ; .+)? \\", lines[0]), lines[0]
        assert len(lines) > 1, f"{name} has no hash"
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines[1:]), name
    text = LOCK.read_text("utf-8")
    for word in ("://", "--index", "--extra-index", "--find-links", "--trusted-host"):
        assert word not in text


def test_the_lock_has_what_is_declared_in_a_version_that_is_allowed() -> None:
    """After a change of a bound: make lock."""
    locked = {name: lines[0].split("==")[1].split()[0] for name, lines in _locked_lines().items()}
    project = DECLARED["project"]
    for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        assert name in locked, f"{name} is not in {LOCK.name}: make lock"
        assert wanted.specifier.contains(locked[name]), f"{name} {locked[name]} is not {wanted.specifier}: make lock"


def test_the_development_environment_is_made_from_the_lock() -> None:
    makefile = (PROJECT / "Makefile").read_text("utf-8")
    assert "pip install -qq --require-hashes --requirement requirements-dev.lock\n" in makefile
    assert LOCK.name in (PROJECT / "SECURITY.md").read_text("utf-8"), "who looks for it finds it named"


@pytest.mark.slow
def test_no_module_calls_anybody_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


def _locked_lines() -> dict[str, list[str]]:
    """The lines of each entry, by name."""
    entries: dict[str, list[str]] = {}
    name = ""
    for line in LOCK.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name = line.partition("==")[0]
        entries.setdefault(name, []).append(line)
    return entries
