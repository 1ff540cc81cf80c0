"""What a shell offers at a press of TAB: `agentrun __complete WORD...` prints it, with the help of `words`.

The first line says what is to be completed: `words` (they follow, each with a tab and what it is) or `files` (the
shell knows them). The last WORD is the one that is being typed. Typer is never loaded: it alone would take longer
than all of this. Nothing is ever said about what is wrong; a shell in the middle of a line has no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentrun.cli import output
from agentrun.cli.options import COMMON, split
from agentrun.cli.words import COMMANDS
from agentrun.commands.completing import Name, agent_names, operation_names, run_names, session_names
from agentrun.commands.place import Place
from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.render.safe import excerpt

COMMAND = "__complete"
FILES = "file"
_ABOUT_COLUMNS = 60
# What means something to one of the shells, or ends a word.
_SPECIAL = frozenset(" \"'`$\\;&|<>()*?[]{}~!#^%")

# By its name, what kind of value an option takes, and its help; no kind: it takes none.
_COMMON = {
    each.name: (FILES if each.metavar in ("DIR", "FILE") else each.metavar and "text", each.about) for each in COMMON
}
_HELP = ("--help", ("", "show the options and an example"))


class Line(NamedTuple):
    """What stands on the command line before the word that is being typed."""

    command: str | None
    arguments: tuple[str, ...]
    pending: str | None
    """The option whose value is being typed."""
    is_verbatim: bool
    """After a `--`: what looks like an option is none."""


def complete(typed: Sequence[str]) -> int:
    """Prints what fits the last of the words `typed` after the name of the program."""
    *before, word = typed or [""]
    line = _read(before)
    option, equals, value = word.partition("=")
    if equals and option.startswith("--") and not line.is_verbatim:
        line, begun, prefix = line._replace(pending=option), value, f"{option}="
    else:
        begun, prefix = word, ""
    kind = _kind(line, begun)
    if kind == FILES:
        output.out("files\n")
        return 0
    names = [each for each in _names(kind, line, _place(before), begun) if _can_be_typed(each.text, kind)]
    output.out("".join(["words\n", *(_shown(name, prefix) for name in names)]))
    return 0


def _can_be_typed(name: str, kind: str) -> bool:
    """Whether a shell and the command take `name` as it stands: it is put on the line unquoted, and shown as it is."""
    # Something stored that looks like an option would be one; and zsh puts a program's path in the place of `=NAME`.
    is_safe = kind == "option" or not name.startswith(("-", "="))
    return is_safe and name.isprintable() and not any(character in _SPECIAL for character in name)


def _shown(name: Name, prefix: str) -> str:
    about = excerpt(name.about, _ABOUT_COLUMNS)
    return f"{prefix}{name.text}\t{about}\n" if about else f"{prefix}{name.text}\n"


def _read(before: Sequence[str]) -> Line:
    command: str | None = None
    arguments: list[str] = []
    words = iter(before)
    for word in words:
        if word == "--":
            rest = list(words)
            command, rest = (command, rest) if command else ((rest or [""])[0], rest[1:])
            return Line(command, (*arguments, *rest), None, True)
        if word.startswith("-") and word != "-":
            takes_value = bool(_options(command).get(word, ("", ""))[0])
            if takes_value and next(words, None) is None:
                return Line(command, tuple(arguments), word, False)
        elif command is None:
            command = word
        else:
            arguments.append(word)
    return Line(command, tuple(arguments), None, False)


def _options(command: str | None) -> dict[str, tuple[str, str]]:
    own = COMMANDS[command].options if command in COMMANDS else {}
    return {**own, **_COMMON, _HELP[0]: _HELP[1]}


def _kind(line: Line, begun: str) -> str:
    """The kind of word that is being typed."""
    if line.pending is not None:
        return _options(line.command).get(line.pending, ("text", ""))[0]
    if begun.startswith("-") and not line.is_verbatim:
        return "option"
    if line.command is None:
        return "command"
    kinds = COMMANDS[line.command].arguments if line.command in COMMANDS else ()
    at = len(line.arguments)
    if at >= len(kinds):
        return kinds[-1].removesuffix("...") if kinds and kinds[-1].endswith("...") else "text"
    return kinds[at].removesuffix("...")


def _names(kind: str, line: Line, place: Place | None, begun: str) -> Iterator[Name]:
    if kind == "command":
        yield from (Name(name, words.about) for name, words in COMMANDS.items() if name.startswith(begun))
    elif kind == "option":
        long = [(name, about) for name, (_, about) in _options(line.command).items() if name.startswith("--")]
        yield from (Name(name, about) for name, about in long if name.startswith(begun))
    elif "|" in kind:
        yield from (Name(choice) for choice in kind.split("|") if choice and choice.startswith(begun))
    elif place is not None:
        yield from _stored_names(kind, line, place, begun)


def _stored_names(kind: str, line: Line, place: Place, begun: str) -> Iterator[Name]:
    """What is in the tree and in the configuration."""
    target = line.arguments[0] if line.arguments else "@last"
    session, slash, run = begun.partition("/")
    match kind:
        case "agent":
            yield from agent_names(place, begun)
        case "operation":
            yield from operation_names(place.tree, target, begun)
        case "run":
            yield from run_names(place.tree, target.partition("/")[0], begun)
        case "target" if slash:
            yield from (Name(f"{session}/{each.text}", each.about) for each in run_names(place.tree, session, run))
        case "target" | "session":
            yield from session_names(place.tree, begun)
        case _:
            return


def _place(before: Sequence[str]) -> Place | None:
    """The place that the line names, as far as it is typed."""
    for words in (before, before[:-1]):  # the last one may be an option whose value is still missing
        try:
            return split(list(words))[0].place()
        except AgentrunError:
            continue
    return None
