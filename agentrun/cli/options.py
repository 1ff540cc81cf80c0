"""What holds for every command, from the command line and the environment: the only place that reads the latter."""

from __future__ import annotations

import os

from agentrun.commands.place import Place, find_place
from agentrun.errors import UsageError
from agentrun.named import NamedTuple

# What commands take where their user says nothing, for their functions and for what `--help` shows of it: how many
# sessions `ls` lists at the most, and why a run was cancelled.
LISTED = 20
CANCEL_REASON = "cancelled by the user"


class CommonOption(NamedTuple):
    """An option that every command takes; one without `metavar` takes no value."""

    name: str
    metavar: str
    about: str

    @property
    def field(self) -> str:
        """Its name in `Options`."""
        return self.name.removeprefix("--").replace("-", "_")


COMMON = (
    CommonOption("--root", "DIR", "the tree (else $AGENTRUN_ROOT, /agent-data, the user's data directory)"),
    CommonOption("--config", "FILE", "the configuration (else $AGENTRUN_CONFIG, agentrun.toml in the root)"),
    CommonOption("--account", "NAME", "whose sessions (default: the operating-system user's)"),
    CommonOption("--json", "", "JSON on standard output, errors as JSON on standard error"),
    CommonOption("--no-color", "", "no colour, as with $NO_COLOR"),
)
_WITH_VALUE = {each.name: each.field for each in COMMON if each.metavar}
_FLAGS = {each.name: each.field for each in COMMON if not each.metavar}


class Options(NamedTuple):
    """The options that every command takes, before or after its name."""

    root: str | None = None
    config: str | None = None
    account: str | None = None
    json: bool = False
    no_color: bool = False

    def place(self) -> Place:
        """Where to work. Raises Denied for an account that is no id."""
        return find_place(dict(os.environ), root=self.root, account=self.account, config=self.config)


def split(argv: list[str]) -> tuple[Options, list[str]]:
    """Takes the common options out of `argv`, wherever they stand before a `--`. Raises UsageError."""
    found: dict[str, str | bool] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name in _WITH_VALUE:
            given = value if equals else next(words, None)
            if not given:
                raise UsageError(f"{name} needs a value")
            found[_WITH_VALUE[name]] = given
        elif word in _FLAGS:
            found[_FLAGS[word]] = True
        else:
            rest.append(word)
    return Options(**found), rest  # type: ignore[arg-type]


def taken_out(name: str) -> str:
    """The variable `name`, which nothing that is started from here on inherits; nothing if there is none."""
    return os.environ.pop(name, "")


def wants_colour(options: Options) -> bool:
    """Whether colour is welcome, as far as the environment says (https://no-color.org)."""
    return not options.no_color and not os.environ.get("NO_COLOR") and not is_dumb()


def is_dumb() -> bool:
    """Whether the terminal can only print."""
    return os.environ.get("TERM") in (None, "", "dumb")
