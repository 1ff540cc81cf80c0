"""Packages that only some users need: looked for where an agent is built, loaded where they are used."""

from __future__ import annotations

from agentrun.config.installing import how_to_install
from agentrun.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_extra(extra: str, *modules: str) -> None:
    """Raises ConfigError with the line to type if a module of that extra is not installed. Loads nothing."""
    from importlib.util import find_spec

    for module in modules:
        if find_spec(module) is None:
            raise ConfigError(f"the Python package {module!r} is not installed", hint=how_to_install(extra))


def load_extra(extra: str, module: str) -> Any:
    """The module, loaded now. Untyped: whoever type-checks agentrun need not have it. Raises ConfigError."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the Python package {module!r} cannot be loaded: {error}",
            hint=how_to_install(extra),
        ) from error
