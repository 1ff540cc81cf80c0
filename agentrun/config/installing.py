"""How to get a package that only some users need."""

from __future__ import annotations

import sys

# As pyproject.toml lists them, and a test compares. To ask the installed package for them takes as long as a command.
PACKAGES = {
    "openai": ("openai>=3,<4",),
    "anthropic": ("anthropic>=2,<3",),
    "prices": ("genai-prices>=0.2,<0.3",),
    "local": ("openai>=3,<4", "xllamacpp>=2026,<2027"),
    "mcp": ("mcp>=2.3,<3",),
    "acp": ("agent-client-protocol>=0.12,<0.13",),
}


def how_to_install(extra: str) -> str:
    """The command that installs what the extra needs, for the interpreter that runs this.

    Not by the name of this package: a package index may have another project under it.
    """
    import shlex

    return shlex.join([sys.executable, "-m", "pip", "install", *PACKAGES[extra]])
