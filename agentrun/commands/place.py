"""Where a command works: which tree, whose, with which configuration."""

from __future__ import annotations

import os
import sys

from agentrun.errors import UsageError
from agentrun.named import NamedTuple
from agentrun.store.identity import account_name
from agentrun.store.layout import ACCOUNTS
from agentrun.store.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_NAME = "agentrun.toml"
# A machine whose administrator provides one root for all users has it here.
SHARED_ROOT = "/agent-data"
_IS_LINUX = sys.platform.startswith("linux")


class Place(NamedTuple):
    """The tree, the configuration file if there is one, and the environment that tools inherit."""

    tree: Tree
    config_path: str | None
    environment: Mapping[str, str]


def find_place(
    environment: Mapping[str, str],
    *,
    root: str | None = None,
    account: str | None = None,
    config: str | None = None,
) -> Place:
    """The place that was named, else the one that `environment` names, else the usual one.

    Raises Denied for an account that is no id, UsageError where a root has to be named.
    """
    name = account or account_name()
    chosen = root or environment.get("AGENTRUN_ROOT") or _default_root(environment, name)
    # One spelling for one tree: what a tool's process is marked with must be found again through any path.
    tree = Tree(os.path.realpath(chosen), name)
    return Place(tree, _config_path(environment, tree.root, config), environment)


def _config_path(environment: Mapping[str, str], root: str, config: str | None) -> str | None:
    named = config or environment.get("AGENTRUN_CONFIG")
    if named:
        return os.path.abspath(named)
    for directory in (root, _user_directory(environment, "XDG_CONFIG_HOME", ".config", "user_config_dir")):
        path = os.path.join(directory or root, CONFIG_NAME)
        if os.path.exists(path):
            return path
    return None


def _default_root(environment: Mapping[str, str], account: str) -> str:
    accounts = os.path.join(SHARED_ROOT, ACCOUNTS)
    nearest = accounts if os.path.isdir(accounts) else SHARED_ROOT
    if os.path.isdir(os.path.join(accounts, account)) or (os.path.isdir(nearest) and os.access(nearest, os.W_OK)):
        return SHARED_ROOT
    directory = _user_directory(environment, "XDG_DATA_HOME", os.path.join(".local", "share"), "user_data_dir")
    if directory is None:
        raise UsageError("this user has no home directory, where a tree would be", hint="name one with: --root DIR")
    return directory


def _user_directory(environment: Mapping[str, str], variable: str, below_home: str, function: str) -> str | None:
    """Where the user's files of a kind are, None if nobody knows. platformdirs costs 18 ms; on Linux the rule is short.

    https://specifications.freedesktop.org/basedir-spec: an absolute path in the variable, else below the home.
    """
    if _IS_LINUX:
        base, home = environment.get(variable, ""), environment.get("HOME", "")
        if not os.path.isabs(base):
            # Neither the working directory nor the top of the file system is anybody's home.
            home = home if os.path.isabs(home) else _home_of_user()
            base = os.path.join(home, below_home) if home else ""
        return os.path.join(base, "agentrun") if base else None
    import platformdirs

    return str(getattr(platformdirs, function)("agentrun", appauthor=False))


def _home_of_user() -> str:
    """The home directory that the system knows of this process's user; nothing if it has none."""
    import pwd

    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
    return home if os.path.isabs(home) else ""
