"""A command loads what it needs: what is slow to load stays out of those that are typed without a thought."""

import subprocess
import sys

import pytest

from tests.cli.conftest import Home

# What costs more than the command itself, each with what is known to bring it in.
HEAVY = frozenset(
    {
        "anyio", "asyncio", "concurrent.futures", "email", "http.client", "importlib.metadata", "logging",
        "multiprocessing", "openai", "anthropic", "mcp", "acp", "platformdirs", "rich", "ssl", "tomllib",
        "urllib.request", "agentrun.executor.drive", "agentrun.adapters.registry", "agentrun.commands.configuration",
    }
)  # fmt: skip
LOADED = """
import atexit, os, sys
leave = os._exit
os._exit = lambda code: (sys.stderr.write("LOADED " + " ".join(sys.modules) + "\\n"), sys.stderr.flush(), leave(code))
sys.argv = ["agentrun", *sys.argv[1:]]
from agentrun.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("show",), ("show", "@last"), ("show", "@last", "--messages", "--tail", "3"), ("--help",),
        ("cancel", "--help"), ("rename", "@last", "other"), ("search", "hello"),
        ("export", "@last"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_heavy_is_loaded_to_look_at_something(home: Home, words: tuple[str, ...]) -> None:
    session = home.new("a title")
    assert home.run("send", session, "hello").code == 0
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], env=home.env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    assert "agentrun.errors" in loaded
    assert loaded & HEAVY == set()
