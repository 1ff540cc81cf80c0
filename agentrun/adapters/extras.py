"""Packages that only some users need: looked for where an agent is built, loaded where they are used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from agentrun.errors import ConfigError


def check_extra(extra: str, *modules: str) -> None:
    """Raises ConfigError with the line to type if a module of that extra is not installed. Loads nothing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"the Python package {module!r} is not installed", hint=f"python3 -m pip install 'agentrun[{extra}]'"
            )


def load_extra(extra: str, module: str) -> Any:
    """The module, loaded now. Untyped: whoever type-checks agentrun need not have it. Raises ConfigError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the Python package {module!r} cannot be loaded: {error}",
            hint=f"python3 -m pip install 'agentrun[{extra}]'",
        ) from error
