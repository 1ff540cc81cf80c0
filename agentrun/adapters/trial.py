"""Asks a model for one word, to see that it answers: the endpoint is there, the key is taken, the model exists."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import NamedTuple

import anyio

from agentrun.adapters.models.choosing import build_model
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import ChatMessage, ModelFailed, ModelRequest, Opened
from agentrun.config import AgentConfig, Config

_QUESTION = "Reply with the word: ok"
# Enough for the word, and for what a model that thinks first has to say.
_TOKENS = 256
_SHOWN = 60


class Trial(NamedTuple):
    """What came of it: `said` or `error`."""

    name: str
    said: str
    error: str | None


def asked(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Trial:
    """Asks the model of `agent`. Raises ConfigError if it cannot even be asked."""
    if (agent.model or "").startswith("scripted:"):
        return Trial(str(agent.model), "is a script, and is asked nothing", None)
    return anyio.run(_asked, config, agent._replace(max_output_tokens=_TOKENS), surroundings)


async def _asked(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Trial:
    model = build_model(config, agent, surroundings)
    request = ModelRequest("", (ChatMessage("user", _QUESTION),), (), _QUESTION, (), {})
    begun = time.monotonic()
    try:
        async with model.opened() if isinstance(model, Opened) else nullcontext():
            reply = await model.complete(request, _pass_over)
    except ModelFailed as failure:
        return Trial(model.name, "", failure.reason)
    seconds = time.monotonic() - begun
    return Trial(model.name, f"answered in {seconds:.1f} s: {' '.join(reply.text.split())[:_SHOWN]!r}", None)


async def _pass_over(text: str) -> None:
    await anyio.lowlevel.checkpoint()
