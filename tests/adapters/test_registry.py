"""From a configuration to an agent that works; what cannot be driven is refused in words."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.registry import Surroundings, build_agent, check_agent
from agentrun.config import Config, load_config
from agentrun.config.installing import how_to_install
from agentrun.errors import ConfigError
from agentrun.states import RunStatus
from agentrun.testing.stretch import FakeStretch

SCRIPT = {
    "turns": [
        {"text": "Asking.", "calls": [{"name": "query", "arguments": {"sql": "x"}}]},
        {"text": "It says {{op:query}}"},
    ]
}
CONFIG = """
[agents.a]
model = "scripted:script.json"
tools = ["query"]
system = "be careful"

[tools.query]
argv = ["cat"]
effect = "read"
resource = "warehouse"
probe = ["true"]
cancel = ["true"]
"""


def configured(directory: Path, text: str) -> Config:
    (directory / "script.json").write_text(json.dumps(SCRIPT))
    (directory / "agentrun.toml").write_text(text)
    return load_config(str(directory / "agentrun.toml"))


def surroundings(directory: Path) -> Surroundings:
    here = str(directory)
    return Surroundings(here, None, "ann", "session-1", "run-1", here, here, {"PATH": os.environ["PATH"]})


def test_a_configured_agent_works_with_its_model_and_tools(tmp_path: Path) -> None:
    config = configured(tmp_path, CONFIG)
    agent = build_agent(config, config.agent(None), surroundings(tmp_path))
    stretch = FakeStretch("go")
    assert anyio.run(stretch.drive, agent) is RunStatus.COMPLETED
    assert stretch.report == 'It says {"sql":"x"}'
    registered = next(event for event in stretch.events if event.type == "tool.registered")
    assert registered.payload["resource"] == "warehouse"


def test_the_budgets_of_the_configuration_are_kept(tmp_path: Path) -> None:
    config = configured(tmp_path, CONFIG.replace("tools =", "max_turns = 1\ntools ="))
    stretch = FakeStretch("go")
    assert anyio.run(stretch.drive, build_agent(config, config.agent(None), surroundings(tmp_path)))
    assert stretch.run.reason == "the budget of 1 turns is used up (max_turns)"


REFUSED = [
    ('model = "local:nosuch.gguf"', "no"),
    ('model = "opnai:x"', "model = 'opnai:x': there is no 'opnai'; did you mean 'openai'?"),
    ('model = "openai:"', "'openai:' is no model"),
    ('model = "scripted:nosuch.json"', "nosuch.json cannot be read"),
    ('kind = "lop"', "kind = 'lop': there is no 'lop'; did you mean 'loop'?"),
    ('model = "scripted:script.json"\nsettings = {x = 1}', "settings are for plug-ins, 'scripted' is none"),
    # Without the extra, it is that which is said to be missing.
    ('model = "openai:x"', "OPENAI_API_KEY" if importlib.util.find_spec("openai") else "'openai' is not installed"),
]


@pytest.mark.parametrize("make", [build_agent, check_agent])
@pytest.mark.parametrize(("keys", "says"), REFUSED)
def test_what_cannot_be_driven_is_refused(tmp_path: Path, keys: str, says: str, make: Callable[..., Any]) -> None:
    config = configured(tmp_path, f'[agents.a]\n{keys}\n[mcp.m]\ncommand = "x"\n')
    with pytest.raises(ConfigError) as refused:
        make(config, config.agent(None), surroundings(tmp_path))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("package", "keys"),
    [("acp", 'kind = "acp"\ncommand = ["x"]'), ("mcp", 'model = "scripted:script.json"\ntools = ["mcp:m"]')],
)
@pytest.mark.parametrize("make", [build_agent, check_agent])
def test_an_extra_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, keys: str, make: Callable[..., Any]
) -> None:
    config = configured(tmp_path, f'[agents.a]\n{keys}\n[mcp.m]\ncommand = "x"\n')
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as refused:
        make(config, config.agent(None), surroundings(tmp_path))
    assert f"'{package}' is not installed" in str(refused.value)
    assert refused.value.hint == how_to_install(package)
