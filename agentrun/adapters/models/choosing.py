"""From the name of a model to the model: `PROVIDER:NAME`, one row of a table for each provider.

What can be refused of a model is found out before it is made, with nothing loaded that asks one: a prompt is accepted,
and agents are listed, by processes that will ask none.
"""

from __future__ import annotations

import os

from agentrun.adapters.models.settings import Key, ModelSettings
from agentrun.adapters.surroundings import Surroundings
from agentrun.config import AgentConfig, Config
from agentrun.errors import ConfigError
from agentrun.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from agentrun.adapters.models.script import ScriptedTurn
    from agentrun.agent.protocols import Model

# Each with what it takes its key from where the configuration names no endpoint and no key of its own.
_DEFAULT_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
# Needs no name: there is one model that comes with it.
_LOCAL = "local"


class _Provider(NamedTuple):
    """`find` raises ConfigError for all that can be refused, and returns what `make` makes the model of."""

    find: Callable[[ModelSettings], Any]
    make: Callable[[ModelSettings, Any], Model]


def check_model(config: Config, agent: AgentConfig, surroundings: Surroundings) -> None:
    """Raises ConfigError as `build_model` does. Of the models, only one that a plug-in brings is made for it."""
    settings = _settings(config, agent, surroundings)
    _provider(agent).find(settings)


def build_model(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Model:
    """The model that `agent` names. Raises ConfigError if there is no such provider, or it lacks what it needs."""
    settings = _settings(config, agent, surroundings)
    provider = _provider(agent)
    model = provider.make(settings, provider.find(settings))
    if (agent.actions or ("structured" if _is_small(agent) and agent.tools else "native")) != "structured":
        return model
    from agentrun.adapters.models.structured import StructuredActions

    return StructuredActions(model, may_ask=settings.may_ask)


def _provider(agent: AgentConfig) -> _Provider:
    name, _, model = (agent.model or "").partition(":")
    if not name or not (model or name == _LOCAL):
        raise _no_model(agent)
    if name not in _PROVIDERS:
        return _plugin(agent, name)
    if agent.settings:
        raise ConfigError(f"agent {agent.name!r}: settings are for plug-ins, {name!r} is none")
    return _PROVIDERS[name]


def _is_small(agent: AgentConfig) -> bool:
    """Whether calls of the API's own form come out wrong more often than not, and it asks for the sake of asking."""
    return (agent.model or "").partition(":")[0] == _LOCAL


def _no_model(agent: AgentConfig) -> ConfigError:
    from agentrun.adapters import plugins

    known = [*_PROVIDERS, *plugins.names(plugins.MODELS)]
    forms = ", ".join(each if each == _LOCAL else f"{each}:NAME" for each in known)
    return ConfigError(f"agent {agent.name!r}: {agent.model!r} is no model", hint=f"write one of: {forms}")


def _plugin(agent: AgentConfig, name: str) -> _Provider:
    def find(settings: ModelSettings) -> Model:
        from agentrun.adapters import plugins
        from agentrun.agent.protocols import Model

        user = f"agent {agent.name!r}: model = {agent.model!r}"
        return plugins.make(plugins.MODELS, name, settings, Model, user=user, built_in=_PROVIDERS)  # type: ignore[type-abstract]

    # What it refuses is only known when it has made its model.
    return _Provider(find, lambda _, made: made)


def _find_endpoint(package: str) -> Callable[[ModelSettings], None]:
    """What an endpoint is asked with: a package, which is also what its extra is called, and a key."""

    def find(settings: ModelSettings) -> None:
        from agentrun.adapters.extras import check_extra

        check_extra(package, package)
        settings.key.check(settings.agent)

    return find


def _openai(settings: ModelSettings, _: None) -> Model:
    from agentrun.adapters.models.openai_compatible import OpenAICompatibleModel

    return OpenAICompatibleModel(settings)


def _anthropic(settings: ModelSettings, _: None) -> Model:
    from agentrun.adapters.models.anthropic import AnthropicModel

    return AnthropicModel(settings)


def _find_script(settings: ModelSettings) -> tuple[ScriptedTurn, ...]:
    from agentrun.adapters.models.script import load_turns

    return load_turns(_script_path(settings))


def _scripted(settings: ModelSettings, turns: tuple[ScriptedTurn, ...]) -> Model:
    from agentrun.adapters.models.scripted import ScriptedModel

    return ScriptedModel(turns, _script_path(settings))


def _script_path(settings: ModelSettings) -> str:
    return os.path.join(settings.directory, settings.name)


def _find_weights(settings: ModelSettings) -> str:
    from agentrun.adapters.models.weights import model_file

    return model_file(settings.name, settings.directory)


def _embedded(settings: ModelSettings, path: str) -> Model:
    from agentrun.adapters.models.embedded import EmbeddedModel, EmbeddedServer

    return EmbeddedModel(settings, EmbeddedServer(path, settings.environment))


_PROVIDERS = {
    "openai": _Provider(_find_endpoint("openai"), _openai),
    "anthropic": _Provider(_find_endpoint("anthropic"), _anthropic),
    "local": _Provider(_find_weights, _embedded),
    "scripted": _Provider(_find_script, _scripted),
}


def key_variables(agents: Iterable[AgentConfig]) -> set[str]:
    """The variables from which models take their keys: no tool must inherit them."""
    return {variable for variable in map(key_variable, agents) if variable}


def key_variable(agent: AgentConfig) -> str | None:
    """The variable that holds the key of the agent's model, if it takes one.

    A key that the configuration does not name goes to the provider whose it is and to no other address.
    """
    if agent.api_key_env or agent.api_key_command or agent.base_url:
        return agent.api_key_env
    return _DEFAULT_KEYS.get((agent.model or "").partition(":")[0])


def _settings(config: Config, agent: AgentConfig, surroundings: Surroundings) -> ModelSettings:
    key = Key(
        variable=key_variable(agent),
        command=agent.api_key_command,
        directory=os.path.abspath(config.directory),
        environment=surroundings.environment,
    )
    return ModelSettings(
        agent=agent.name,
        name=(agent.model or "").partition(":")[2],
        key=key,
        base_url=agent.base_url,
        temperature=agent.temperature,
        max_output_tokens=agent.max_output_tokens,
        silence=agent.request_timeout,
        finish_reason=agent.finish_reason,
        may_ask=not _is_small(agent) if agent.may_ask is None else agent.may_ask,
        directory=config.directory,
        environment=surroundings.environment,
        settings=agent.settings,
    )
