"""Makes an agent of what the configuration says: the one place that knows all adapters.

What is configured but cannot be driven by this version is refused in words, never passed over: a run that
ignored a check or a limit would promise what nobody keeps.

Each kind of part is loaded where one is made. To see whether an agent could be made, none is: a command that lists all
agents, or accepts a prompt for one, has to be quick.
"""

from __future__ import annotations

import os

from agentrun.adapters.models.choosing import build_model, check_model, key_variables
from agentrun.adapters.surroundings import Surroundings
from agentrun.config import DELEGATE, MCP_PREFIX, AgentConfig, Config, ToolConfig
from agentrun.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from agentrun.adapters.mcp.server import McpServer
    from agentrun.agent.checks import Check
    from agentrun.agent.outside import Outside
    from agentrun.agent.protocols import Agent, Tool

__all__ = ["Surroundings", "build_agent", "build_checks", "build_outside", "check_agent"]

_KINDS = ("loop", "acp", "command")


def check_agent(config: Config, agent: AgentConfig, surroundings: Surroundings) -> None:
    """Raises ConfigError as `build_agent` does. Of the parts of an agent, only those of plug-ins are made for it."""
    if agent.kind not in _KINDS:
        _plugin_agent(config, agent, surroundings)
    elif agent.kind == "acp":
        _check_acp()
    elif agent.kind == "loop":
        check_model(config, agent, surroundings)
        for name in _tools(agent):
            # A command is tried when it is called, and not before.
            if name != DELEGATE and config.tool(name).kind != "command":
                _plugin_tool(config, config.tool(name), surroundings)
        if _servers(agent):
            _check_mcp()


def build_agent(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Agent:
    """The agent that `agent` describes, for the run that `surroundings` names.

    Raises ConfigError for what this version cannot drive, and for a script that is none.
    """
    if agent.kind not in _KINDS:
        return _plugin_agent(config, agent, surroundings)
    if agent.kind == "loop":
        return _loop(config, agent, surroundings)
    return _outside(config, agent, surroundings)


def _plugin_agent(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Agent:
    from agentrun.adapters import plugins
    from agentrun.agent.protocols import Agent

    settings = plugins.AgentSettings(agent.name, agent.settings, os.path.abspath(config.directory), surroundings)
    user = f"agent {agent.name!r}: kind = {agent.kind!r}"
    return plugins.make(plugins.AGENTS, agent.kind, settings, Agent, user=user, built_in=_KINDS)  # type: ignore[type-abstract]


def _loop(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Agent:
    from agentrun.agent.loop import LoopAgent
    from agentrun.agent.protocols import Limits, Opened

    limits = Limits(agent.max_turns, agent.max_tool_calls, agent.max_tokens, agent.compact_above_tokens)
    model = build_model(config, agent, surroundings)
    tools = [_tool(config, name, surroundings) for name in _tools(agent)]
    servers = [_server(config, name, surroundings) for name in _servers(agent)]

    def loop(tools: Sequence[Tool]) -> Agent:
        return LoopAgent(model, tools, limits, agent.system)

    held = [part for part in (model, *tools) if isinstance(part, Opened)]
    if servers:
        from agentrun.adapters.agents.equipped import EquippedAgent

        equipped: Agent = EquippedAgent(loop, tools, servers)
    else:
        equipped = loop(tools)
    if not held:
        return equipped
    from agentrun.adapters.agents.opened import OpenedAgent

    return OpenedAgent(equipped, held)


def _tools(agent: AgentConfig) -> list[str]:
    """The tools that the agent is given by name."""
    return [name for name in agent.tools if not name.startswith(MCP_PREFIX)]


def _servers(agent: AgentConfig) -> list[str]:
    """The servers whose tools it is given."""
    return [name for name in agent.tools if name.startswith(MCP_PREFIX)]


def _check_acp() -> None:
    from agentrun.adapters.extras import check_extra

    check_extra("acp", "acp")


def _check_mcp() -> None:
    from agentrun.adapters.extras import check_extra

    check_extra("mcp", "mcp")


def _outside(config: Config, agent: AgentConfig, surroundings: Surroundings) -> Agent:
    # A program of the configuration lies where that says; one of the command line, where the session was made.
    directory = os.path.abspath(config.directory) if agent.name in config.agents else ""
    given: dict[str, Any] = {"directory": directory, "secrets": _secrets(config), "patience": config.patience}
    if agent.kind == "command":
        from agentrun.adapters.agents.command import CommandAgent

        return CommandAgent(agent, surroundings, **given)
    _check_acp()
    from agentrun.adapters.acp.agent import AcpAgent

    return AcpAgent(agent, surroundings, **given)


def build_checks(config: Config, agent: AgentConfig, surroundings: Surroundings) -> list[Check]:
    """What the reports of `agent` have to pass before they are committed."""
    from agentrun.adapters.checks import CommandCheck

    directory, secrets, patience = config.directory, _secrets(config), config.patience
    return [
        CommandCheck(argv, surroundings=surroundings, directory=directory, secrets=secrets, patience=patience)
        for argv in agent.checks
    ]


def build_outside(config: Config, surroundings: Surroundings) -> Outside:
    """What can be asked about the actions of the run that `surroundings` names, whichever agent asked for them."""
    from agentrun.adapters.tools.delegate import delegate_config
    from agentrun.adapters.tools.outside import CommandOutside

    tools = {**config.tools, DELEGATE: delegate_config(config)}
    return CommandOutside(tools, surroundings, directory=config.directory, secrets=_secrets(config))


def _tool(config: Config, name: str, surroundings: Surroundings) -> Tool:
    if name == DELEGATE:
        from agentrun.adapters.tools.delegate import DelegateTool, delegate_config

        # It executes a run itself, so it needs the keys of models. The tools of that run do not get them.
        return DelegateTool(delegate_config(config), surroundings, directory=config.directory, secrets=())
    tool = config.tool(name)
    if tool.kind != "command":
        return _plugin_tool(config, tool, surroundings)
    from agentrun.adapters.tools.command import CommandTool

    return CommandTool(tool, surroundings, directory=config.directory, secrets=_secrets(config))


def _plugin_tool(config: Config, tool: ToolConfig, surroundings: Surroundings) -> Tool:
    from agentrun.adapters import plugins
    from agentrun.adapters.tools.command import spec_of
    from agentrun.agent.protocols import Tool

    settings = plugins.ToolSettings(spec_of(tool), tool.settings, os.path.abspath(config.directory), surroundings)
    user = f"tool {tool.name!r}: kind = {tool.kind!r}"
    made = plugins.make(plugins.TOOLS, tool.kind, settings, Tool, user=user, built_in=["command"])  # type: ignore[type-abstract]
    if made.spec.name != tool.name:
        raise ConfigError(f"{user}: the plug-in calls its tool {made.spec.name!r}, and has to call it {tool.name!r}")
    return made


def _server(config: Config, name: str, surroundings: Surroundings) -> McpServer:
    _check_mcp()
    from agentrun.adapters.mcp.server import McpServer

    server = config.mcp[name.removeprefix(MCP_PREFIX)]
    return McpServer(server, surroundings, directory=config.directory, secrets=_secrets(config))


def _secrets(config: Config) -> set[str]:
    """The variables that no tool and no agent from outside must inherit."""
    return key_variables(config.agents.values())
