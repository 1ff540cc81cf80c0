"""The quick path: the command lines that are typed all day, told apart without loading a parser of command lines.

    show S    show S --messages --tail N    ls    new T    send S T --detach    steer S T    cancel S

They are read here in exactly this form and lead to the functions to which `app` leads as well, so there is one
implementation, and typer's costs are not theirs. Whatever else a command line says, in whatever order, is typer's.
"""

from __future__ import annotations

from agentrun.cli.options import Options

# An amount for `--tail` is no longer; typer has the words for those that are, and for what is no amount.
_MOST_DIGITS = 9


def run(argv: list[str]) -> int | None:
    """Runs `argv` if it has one of the forms; returns its exit code, None if it has none of them."""
    match argv:
        case ["show", name, *look] if _is_word(name) and (tail := _tail_of(look)) is not None:
            from agentrun.cli import showing

            return showing.show(Options(), name, showing.Look(messages=bool(look), tail=tail or None))
        case ["ls"]:
            from agentrun.cli import listing

            return listing.ls(Options(), listing.Wanted(), is_watched=False)
        case ["new", title] if _is_word(title):
            from agentrun.cli import making

            return making.new(Options(), title, session_id=None, agent=None, text=None)
        case ["send", name, text, "--detach"] if _is_word(name) and _is_word(text):
            from agentrun.cli import sending

            return sending.send(Options(), name, sending.Words([text], []), sending.Asked(detach=True))
        case ["steer", name, text] if _is_word(name) and _is_word(text):
            from agentrun.cli import sending

            return sending.steer(Options(), name, sending.Words([text], []), key=None, if_ended=None)
        case ["cancel", name] if _is_word(name):
            from agentrun.cli import stopping

            return stopping.cancel(Options(), name, stopping.Asked())
    return None


def _is_word(text: str) -> bool:
    """Whether `text` is an argument for sure: neither an option nor standard input, nor the nothing that is refused."""
    return text != "" and not text.startswith("-")


def _tail_of(look: list[str]) -> int | None:
    """The number in `--messages --tail N`; 0 for a `show` that says nothing more, None for one that is not ours."""
    match look:
        case []:
            return 0
        case ["--messages", "--tail", count] if count.isdecimal() and count.isascii() and len(count) <= _MOST_DIGITS:
            return int(count) or None
    return None
