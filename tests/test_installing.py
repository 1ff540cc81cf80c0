"""What is typed to get a package that is missing goes into the interpreter that missed it, and names nobody else's."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

from agentrun.config.installing import PACKAGES, how_to_install

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_packages_of_an_extra_are_named_and_not_this_one() -> None:
    """Another project has this one's name on an index, and would be installed wherever this one is not."""
    for extra, packages in PACKAGES.items():
        assert list(packages) == EXTRAS[extra]
        assert shlex.split(how_to_install(extra)) == [sys.executable, "-m", "pip", "install", *packages]
