"""From the name of a model to the model: `PROVIDER:NAME`, one row of a table for each provider."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from agentrun.adapters import plugins
from agentrun.adapters.models.settings import Key, ModelSettings
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import Model
from agentrun.config import AgentConfig, Config
from agentrun.errors import ConfigError

# Each with what it takes its key from where the configuration names no endpoint and no key of its own.
_DEFAULT_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}
# Needs no name: there is one model that comes with it.
_LOCAL = "local"


def build_model(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Model:
    """The model that `agent` names. Raises ConfigError if there is no such provider, or it lacks what it needs."""
    provider, _, name = (agent.model or "").partition(":")
    if not provider or not (name or provider == _LOCAL):
        raise _no_model(agent)
    # A model of this size gets calls of the API's own form wrong more often than not, and asks for the sake of asking.
    is_small = provider == _LOCAL
    may_ask = not is_small if agent.may_ask is None else agent.may_ask
    actions = agent.actions or ("structured" if is_small and agent.tools else "native")
    settings = _settings(config, agent, name, surroundings)._replace(may_ask=may_ask)
    if provider not in _MODELS:
        user = f"agent {agent.name!r}: model = {agent.model!r}"
        model = plugins.make(plugins.MODELS, provider, settings, Model, user=user, built_in=_MODELS)  # type: ignore[type-abstract]
    elif agent.settings:
        raise ConfigError(f"agent {agent.name!r}: settings are for plug-ins, {provider!r} is none")
    else:
        model = _MODELS[provider](settings)
    if actions != "structured":
        return model
    from agentrun.adapters.models.structured import StructuredActions

    return StructuredActions(model, may_ask=may_ask)


def _no_model(agent: AgentConfig) -> ConfigError:
    known = [*_MODELS, *plugins.names(plugins.MODELS)]
    forms = ", ".join(each if each == _LOCAL else f"{each}:NAME" for each in known)
    return ConfigError(f"agent {agent.name!r}: {agent.model!r} is no model", hint=f"write one of: {forms}")


# Each loads what it is made of: a prompt is accepted by a process that has use for one of them at the most.


def _openai(settings: ModelSettings) -> Model:
    from agentrun.adapters.models.openai_compatible import OpenAICompatibleModel

    return OpenAICompatibleModel(settings)


def _anthropic(settings: ModelSettings) -> Model:
    from agentrun.adapters.models.anthropic import AnthropicModel

    return AnthropicModel(settings)


def _scripted(settings: ModelSettings) -> Model:
    from agentrun.adapters.models.scripted import load_script

    return load_script(os.path.join(settings.directory, settings.name))


def _embedded(settings: ModelSettings) -> Model:
    from agentrun.adapters.models.embedded import EmbeddedModel, EmbeddedServer, model_file

    server = EmbeddedServer(model_file(settings.name, settings.directory), settings.environment)
    return EmbeddedModel(settings, server)


_MODELS: dict[str, Callable[[ModelSettings], Model]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "local": _embedded,
    "scripted": _scripted,
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


def _settings(config: Config, agent: AgentConfig, name: str, surroundings: Surroundings) -> ModelSettings:
    key = Key(
        variable=key_variable(agent),
        command=agent.api_key_command,
        directory=os.path.abspath(config.directory),
        environment=surroundings.environment,
    )
    return ModelSettings(
        agent=agent.name,
        name=name,
        key=key,
        base_url=agent.base_url,
        temperature=agent.temperature,
        max_output_tokens=agent.max_output_tokens,
        silence=agent.request_timeout,
        finish_reason=agent.finish_reason,
        directory=config.directory,
        environment=surroundings.environment,
        settings=agent.settings,
    )
