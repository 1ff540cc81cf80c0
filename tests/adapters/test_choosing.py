"""Which model a name stands for, and where its key comes from."""

from __future__ import annotations

import importlib.util

import pytest

from agentrun.adapters.models.choosing import build_model, key_variable, key_variables
from agentrun.adapters.surroundings import Surroundings
from agentrun.config import AgentConfig, Config
from agentrun.config.installing import how_to_install
from agentrun.errors import ConfigError


def surroundings(**environment: str) -> Surroundings:
    return Surroundings("/root", None, "ann", "session-1", "run-1", "/tmp", "/tmp", environment)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_key_goes_to_nobody_but_the_endpoint_it_is_for(provider: str) -> None:
    usual = f"{provider.upper()}_API_KEY"
    agent = AgentConfig("a", model=f"{provider}:m")
    assert key_variable(agent) == usual
    assert key_variable(agent._replace(api_key_env="MINE")) == "MINE"
    assert key_variable(agent._replace(base_url="http://x")) is None, "an address must not get a key unasked"
    assert key_variable(agent._replace(api_key_command=("pass",))) is None
    assert key_variables([agent, agent._replace(api_key_env="MINE")]) == {usual, "MINE"}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_without_its_key_or_its_extra_a_model_is_not_begun_with(provider: str) -> None:
    agent = AgentConfig("a", model=f"{provider}:m")
    with pytest.raises(ConfigError) as refused:
        build_model(Config(), agent, surroundings())
    hint = refused.value.hint or ""
    if importlib.util.find_spec(provider) is None:
        assert how_to_install(provider) in hint
    else:
        assert f"export {provider.upper()}_API_KEY=..." in hint
        model = build_model(Config(), agent, surroundings(**{f"{provider.upper()}_API_KEY": "k"}))
        assert model.name == f"{provider}:m"
