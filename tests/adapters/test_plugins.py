"""What other packages bring: found by name, loaded when used, and to blame by name if it does not work."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.registry import build_agent, check_agent
from agentrun.adapters.surroundings import Surroundings
from agentrun.config import load_config
from agentrun.errors import ConfigError
from agentrun.states import RunStatus
from agentrun.testing.stretch import FakeStretch

CODE = """
import agentrun

class Parrot:
    def __init__(self, settings):
        self.settings, self.name = settings, f"parrot:{settings.name}"
    async def complete(self, request, on_text):
        if "echo" in {tool.name for tool in request.tools} and not request.results:
            return agentrun.ModelReply("", calls=(agentrun.ToolCall("c1", "echo", {"of": self.settings.name}),))
        text = f"{request.last_input} {dict(self.settings.settings)} {request.results}"
        await on_text(text)
        return agentrun.ModelReply(text)

class Echo:
    def __init__(self, settings):
        self.spec, self.settings = settings.spec, settings
    async def call(self, invocation, on_remote_id, on_stopped):
        text = f"{invocation.arguments} {dict(self.settings.settings)}"
        return agentrun.ToolOutcome(agentrun.OperationStatus.SUCCEEDED, text.encode())

class Own:
    def __init__(self, settings):
        self.settings = settings
    async def run(self, stretch):
        async def turn(exchange):
            return agentrun.Said(f"own {self.settings.name} {dict(self.settings.settings)}")
        await agentrun.Turns(stretch, "own", turn, repeatable=True).run()

def broken(settings):
    raise RuntimeError("no licence")

def nothing(settings):
    return 4

def misnamed(settings):
    return Echo(settings._replace(spec=settings.spec._replace(name="other")))
"""
POINTS = """
[agentrun.models]
parrot = brought:Parrot
broken = brought:broken
gone = no_such_module:make

[agentrun.tools]
echo = brought:Echo
misnamed = brought:misnamed

[agentrun.agents]
own = brought:Own
nothing = brought:nothing
missing = brought:no_such_name
"""


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an installed package that brings plug-ins, as pip leaves one."""
    directory = tmp_path / "site"
    info = directory / "brought-1.dist-info"
    info.mkdir(parents=True)
    (directory / "brought.py").write_text(CODE)
    (info / "entry_points.txt").write_text(POINTS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, "brought", raising=False)
    return tmp_path


def built(directory: Path, text: str, make: Callable[..., Any] = build_agent) -> Any:
    (directory / "agentrun.toml").write_text(text)
    (directory / "s.json").write_text(json.dumps({"turns": [{"text": "x"}]}))
    config = load_config(str(directory / "agentrun.toml"))
    here = str(directory)
    surroundings = Surroundings(here, None, "ann", "session-1", "run-1", here, here, {"PATH": os.environ["PATH"]})
    return make(config, config.agent("a"), surroundings)


def test_a_model_and_a_tool_of_a_package(brought: Path) -> None:
    config = """
[agents.a]
model = "parrot:grey"
tools = ["echo"]
settings = { loud = true }
[tools.echo]
kind = "echo"
effect = "read"
settings = { times = 2 }
"""
    stretch = FakeStretch("hello")
    assert anyio.run(stretch.drive, built(brought, config)) is RunStatus.COMPLETED
    assert stretch.report == "hello {'loud': True} {'echo': \"{'of': 'grey'} {'times': 2}\"}"
    assert {operation.name for operation in stretch.operations} == {"parrot:grey", "echo"}


def test_an_agent_of_a_package(brought: Path) -> None:
    stretch = FakeStretch("hello")
    agent = built(brought, '[agents.a]\nkind = "own"\nsettings = { b = [1] }')
    assert anyio.run(stretch.drive, agent) is RunStatus.COMPLETED
    assert stretch.report == "own a {'b': [1]}"


BROKEN = [
    ('model = "broken:x"', "the plug-in 'broken' (brought:broken) cannot be used: RuntimeError: no licence"),
    ('model = "gone:x"', "the plug-in 'gone' (no_such_module:make) cannot be used: ModuleNotFoundError"),
    ('model = "parot:x"', "there is no 'parot'; did you mean 'parrot'?"),
    ('kind = "nothing"', "the plug-in 'nothing' (brought:nothing) made a int, which is no Agent"),
    ('kind = "missing"', "the plug-in 'missing' (brought:no_such_name) cannot be used: AttributeError"),
    ('kind = "onw"', "there is no 'onw'; did you mean 'own'?"),
    ('model = "scripted:s.json"\ntools = ["t"]\n[tools.t]\nkind = "nosuch"', "tool 't': kind = 'nosuch': there is no"),
    ('model = "scripted:s.json"\ntools = ["t"]\n[tools.t]\nkind = "misnamed"', "and has to call it 't'"),
]


@pytest.mark.parametrize("make", [build_agent, check_agent])
@pytest.mark.parametrize(("keys", "says"), BROKEN)
def test_a_plug_in_that_does_not_work_is_named_and_touches_no_other_agent(
    brought: Path, keys: str, says: str, make: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError) as refused:
        built(brought, f"[agents.a]\n{keys}\n", make)
    assert says in str(refused.value)
    built(brought, f'[agents.a]\nmodel = "scripted:s.json"\n[agents.b]\n{keys}\n', make)


def test_the_known_ones_are_named(brought: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        built(brought, '[agents.a]\nkind = "zzz"')
    assert refused.value.hint == "there are: loop, acp, command, missing, nothing, own"
