"""An option whose value is one of a closed set: typer itself knows only the enumerations of `enum`."""

from __future__ import annotations

import typer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from agentrun.named import StrEnum

    Word = TypeVar("Word", bound=StrEnum)


class OneOf:
    """What typer reads the value with; `choices` are the words that it may be."""

    def __init__(self, words: type[Word]) -> None:
        self.choices = tuple(words)
        self.__name__ = words.__name__

    def __call__(self, text: str) -> StrEnum:
        """The word that `text` is. Raises BadParameter."""
        for each in self.choices:
            if each == text:
                return each
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(repr(each.value) for each in self.choices)}.")
