"""A command loads what it needs: what is slow to load stays out of those that are typed without a thought."""

import subprocess
import sys

import pytest

from agentrun.errors import EXIT_CODES
from tests.cli.conftest import PATIENCE, Home, until

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


# What even a command that changes something does without, if it is one of those that are typed all day.
NOT_HOT = HEAVY | {
    "collections", "contextlib", "dataclasses", "datetime", "enum", "functools", "hashlib", "heapq", "inspect", "json",
    "operator", "pathlib", "re", "reprlib", "shutil", "signal", "subprocess", "tempfile", "threading", "typer",
    "types", "typing", "unicodedata",
}  # fmt: skip
# What only those need that write, or that look at a run which goes on.
WRITING = {
    "agentrun.commands.control", "agentrun.store.building", "agentrun.store.inbox", "agentrun.store.redo",
    "agentrun.store.runs", "agentrun.store.blobs", "agentrun.store.expected", "agentrun.store.holders",
    "agentrun.store.writer", "agentrun.records.acceptance",
}  # fmt: skip
UNDER_WAY = {
    "agentrun.records.changes",
    "agentrun.records.usage",
    "agentrun.store.in_the_way",
    "fcntl",
    "agentrun.records.lease",
    "agentrun.store.deadlines",
    "agentrun.store.locks",
}
# What only a run needs that is over, or that its executor left; and what says much of one.
SELDOM = {
    "agentrun.adapters.extras", "agentrun.adapters.plugins", "agentrun.commands.abandoned",
    "agentrun.commands.leftovers", "agentrun.commands.vigil", "agentrun.lifecycle.recovery", "agentrun.records.claim",
    "agentrun.records.ending", "agentrun.render.plain", "agentrun.render.transcript", "agentrun.store.resources",
}  # fmt: skip
# What executes an agent, and what only that needs.
EXECUTING = {
    "anyio", "asyncio", "ctypes", "email", "hmac", "random", "ssl", "tempfile", "_hashlib", "agentrun.agent",
    "agentrun.adapters.acp", "agentrun.adapters.agents", "agentrun.adapters.mcp", "agentrun.adapters.process",
    "agentrun.adapters.tools", "agentrun.adapters.models.embedded", "agentrun.adapters.models.openai_compatible",
    "agentrun.adapters.models.scripted", "agentrun.executor",
}  # fmt: skip
# The modules of agentrun that a look at what is over may load, the packages included.
MOST_TO_LOOK = 46


def loaded_by(home: Home, *words: str) -> set[str]:
    """The modules that a command has loaded when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env=home.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode in (0, EXIT_CODES["not_over"]), done.stderr
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    assert "agentrun.errors" in loaded
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("show",), ("show", "@last", "--json"), ("--help",), ("cancel", "--help"), ("rename", "@last", "other"),
        ("search", "hello"), ("export", "@last"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_heavy_is_loaded_to_look_at_something(home: Home, words: tuple[str, ...]) -> None:
    session = home.new("a title")
    assert home.run("send", session, "hello").code == 0
    assert loaded_by(home, *words) & HEAVY == set()


@pytest.mark.slow
def test_a_hot_command_loads_no_more_than_it_needs(home: Home) -> None:
    home.tool("hold", home.gate())
    home.model({"text": "I wait", "calls": [{"name": "hold"}]})
    assert loaded_by(home, "new", "a title") & NOT_HOT == set()
    run = home.detach("@last", "hello")
    home.at_gate()
    for words in (("show", "@last"), ("show", "@last", "--messages", "--tail", "3"), ("ls",)):
        assert loaded_by(home, *words) & (NOT_HOT | WRITING) == set(), words
    assert loaded_by(home, "steer", run, "not so") & (NOT_HOT | SELDOM) == set()
    assert loaded_by(home, "cancel", run) & (NOT_HOT | SELDOM | {"agentrun.commands.control"}) == set()
    # Also to its last step, behind which nothing is under way.
    until(lambda: not (home.session_dir(run) / "active").exists(), "the end of the run")
    for words in (("show", "@last"), ("ls",)):
        loaded = loaded_by(home, *words)
        assert loaded & (NOT_HOT | WRITING | UNDER_WAY) == set(), words
        assert len([name for name in loaded if name.startswith("agentrun")]) <= MOST_TO_LOOK, words


@pytest.mark.slow
def test_to_accept_a_prompt_nothing_is_loaded_that_executes_its_agent(home: Home) -> None:
    """It is only seen whether the agent could be built; it is executed by another process."""
    session = home.new("a title")
    home.tool("look", "cat", effect="read")
    loaded = loaded_by(home, "send", session, "hello", "--detach")
    assert loaded & (EXECUTING | SELDOM | {"json", "subprocess", "typer", "uuid"}) == set()
    home.wait_for_status(session, "completed")


@pytest.mark.slow
def test_to_list_agents_nothing_is_loaded_that_executes_one(home: Home) -> None:
    """Of no kind that agentrun brings along; what a plug-in loads is its own."""
    home.model({"text": "x"})
    agents = {
        "scripted": 'model = "scripted:script.json"\ntools = ["look", "delegate", "mcp:files"]',
        "keyed": 'model = "openai:m"',
        "other": 'model = "anthropic:m"\nactions = "structured"',
        "embedded": 'model = "local"',
        "command": 'kind = "command"\ncommand = ["cat"]\nchecks = [["true"]]',
        "speaking": 'kind = "acp"\ncommand = ["cat"]',
    }
    written = [f"[agents.{name}]\n{keys}\n" for name, keys in agents.items()]
    home.config.write_text("".join(written) + '[tools.look]\nargv = ["cat"]\n[mcp.files]\ncommand = "cat"\n')
    loaded = loaded_by(home, "agents")
    assert "agentrun.adapters.registry" in loaded
    assert loaded & EXECUTING == set()
