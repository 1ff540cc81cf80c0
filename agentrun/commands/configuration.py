"""What is configured, where each of it comes from, and whether it works. No value of a secret leaves here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

from agentrun.commands.place import CONFIG_NAME, Place
from agentrun.config import AgentConfig, Config, load_config
from agentrun.config.durations import written as duration_as_written
from agentrun.config.keys import ENDING
from agentrun.errors import AgentrunError, ConfigError
from agentrun.named import NamedTuple
from agentrun.records.codec import Doc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Setting(NamedTuple):
    """One value of the effective configuration; `origin` says where it comes from, in words."""

    name: str
    value: Any
    origin: str

    def to_doc(self) -> Doc:
        """As `config --json` has it."""
        return {"name": self.name, "value": self.value, "from": self.origin}


class AgentRow(NamedTuple):
    """An agent that can be named; `problem` says why it cannot be used, as far as a look from here tells."""

    name: str
    kind: str
    about: str
    is_default: bool
    problem: str | None
    hint: str | None

    def to_doc(self) -> Doc:
        """As `agents --json` has it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "about": self.about,
            "default": self.is_default,
            "problem": self.problem,
            "hint": self.hint,
        }


class Finding(NamedTuple):
    """What a check has found: `error` None says that it works."""

    what: str
    error: str | None = None
    hint: str | None = None

    def to_doc(self) -> Doc:
        """As `agents check --json` has it."""
        return {"what": self.what, "ok": self.error is None, "error": self.error, "hint": self.hint}


def settings(place: Place, *, root: str | None, account: str | None, config: str | None) -> Iterator[Setting]:
    """The effective configuration; `root`, `account`, `config` are what the command line gave. Raises ConfigError."""
    environment = place.environment
    yield Setting("root", place.tree.root, _origin(root, "--root", environment, "AGENTRUN_ROOT"))
    yield Setting("account", place.tree.account, "--account" if account else "the operating-system user")
    found = "in the root" if place.config_path == os.path.join(place.tree.root, CONFIG_NAME) else "the user's"
    origin = _origin(
        config, "--config", environment, "AGENTRUN_CONFIG", found if place.config_path else "there is none"
    )
    yield Setting("config", place.config_path, origin)
    loaded = load_config(place.config_path)
    document = _document(loaded.path)
    for name in ("default_agent", "lease", "max_attempts", "max_depth", "grace", "kill_timeout"):
        yield _setting(name, name, document, getattr(loaded, name), loaded)
    # What the top of the file says of all tools is as good as written in the table of each.
    said = {key: document[key] for key in ENDING if key in document}
    of_all = {"tools": said, "mcp": said}
    for table in ("agents", "tools", "mcp"):
        for name, entry in getattr(loaded, table).items():
            written = of_all.get(table, {}) | document.get(table, {}).get(name, {})
            for key in entry._fields:
                if key != "name" and (key in written or getattr(entry, key) not in (None, (), "", {})):
                    yield _setting(f"{table}.{name}.{key}", key, written, getattr(entry, key), loaded)


def agents(place: Place) -> list[AgentRow]:
    """All agents that have a name of their own. Raises ConfigError if the file cannot be read."""
    from agentrun.adapters.models.weights import is_installed

    config = load_config(place.config_path)
    names = [*config.agents] + (["local"] if is_installed() and "local" not in config.agents else [])
    default = config.default_agent or (names[0] if len(names) == 1 else None)
    return [_row(place, config, config.agent(name), name == default) for name in names]


def check(place: Place, name: str) -> Iterator[Finding]:
    """Tries the agent `name` out: finds its programs, and asks its model for a word. Raises ConfigError."""
    config = load_config(place.config_path)
    agent = config.agent(name)
    yield Finding(f"agent {agent.name}: {_about(agent)}")
    problem = _problem(place, config, agent)
    if problem is not None:
        yield Finding("configuration", problem.message, problem.hint)
        return
    yield Finding("configuration")
    for program, used_by in _programs(config, agent):
        is_there = _find_program(program, config, place.environment)
        yield Finding(f"{used_by}: {program}", None if is_there else "there is no such program")
    if agent.kind == "loop":
        yield _ask(place, config, agent)


def _ask(place: Place, config: Config, agent: AgentConfig) -> Finding:
    from agentrun.adapters.trial import asked

    reply = asked(config, agent, _nowhere(place))
    return Finding(f"model {reply.name}: {reply.said}" if reply.error is None else f"model {reply.name}", reply.error)


def _row(place: Place, config: Config, agent: AgentConfig, is_default: bool) -> AgentRow:
    problem = _problem(place, config, agent)
    message, hint = (problem.message, problem.hint) if problem else (None, None)
    return AgentRow(agent.name, agent.kind, _about(agent), is_default, message, hint)


def _problem(place: Place, config: Config, agent: AgentConfig) -> AgentrunError | None:
    from agentrun.adapters.registry import check_agent

    try:
        check_agent(config, agent, _nowhere(place))
    except ConfigError as error:
        return error
    return None


def _nowhere(place: Place) -> Any:
    from agentrun.adapters.surroundings import Surroundings

    return Surroundings(place.tree.root, None, place.tree.account, "", "", "", os.curdir, place.environment)


def _about(agent: AgentConfig) -> str:
    if agent.kind == "loop":
        return str(agent.model)
    if not agent.command:
        return f"plug-in {agent.kind}"
    from agentrun.config.secrets import redacted

    return " ".join(redacted("command", [*agent.command]))


def _programs(config: Config, agent: AgentConfig) -> Iterator[tuple[str, str]]:
    if agent.command:
        yield agent.command[0], "command"
    if agent.api_key_command:
        yield agent.api_key_command[0], "api_key_command"
    for command in agent.checks:
        yield command[0], "check"
    for name in agent.tools:
        if name in config.tools and config.tools[name].argv:
            yield config.tools[name].argv[0], f"tool {name}"


def _find_program(program: str, config: Config, environment: Mapping[str, str]) -> bool:
    if os.sep in program:
        return os.access(os.path.join(config.directory, program), os.X_OK)
    return shutil.which(program, path=environment.get("PATH")) is not None


def _document(path: str | None) -> Doc:
    import tomllib

    if path is None:
        return {}
    with open(path, "rb") as file:
        return tomllib.load(file)


def _setting(name: str, key: str, written: Doc, effective: Any, config: Config) -> Setting:
    is_written = key in written
    from agentrun.config.secrets import redacted

    value = redacted(key, written[key] if is_written else effective)
    if not is_written and isinstance(value, float):
        value = duration_as_written(value)  # the only defaults that are no whole numbers
    return Setting(
        name, list(value) if isinstance(value, tuple) else value, str(config.path) if is_written else "default"
    )


def _origin(
    given: str | None, option: str, environment: Mapping[str, str], variable: str, otherwise: str = "the usual place"
) -> str:
    if given:
        return option
    return f"${variable}" if environment.get(variable) else otherwise
