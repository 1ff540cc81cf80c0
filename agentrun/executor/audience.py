"""Whoever looks on where a run is executed."""

from __future__ import annotations

from typing import Protocol

from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message

# Seconds between two calls of `tick` where nothing changes with time.
IDLE = 60.0


class Audience(Protocol):
    """Is told what has been stored, and may answer questions. Nothing is lost if it does not listen."""

    def event(self, event: Event) -> None:
        """An event was stored."""

    def message(self, message: Message) -> None:
        """A message of the run was stored."""

    def forgotten(self, event: Event) -> list[int]:
        """The numbers of messages that it wants to be told of again before `event`: it holds the newest alone."""

    def draft(self, text: str) -> None:
        """More text of the reply under way."""

    def tick(self) -> float:
        """Time has passed. Returns after how many seconds to call again at the latest."""

    @property
    def can_answer(self) -> bool:
        """Whether somebody is there who can be asked."""

    @property
    def keeps_what_it_hears(self) -> bool:
        """Whether a script gets the events as they are stored, so that each must last before it is told."""

    async def ask(self, waiting: Doc) -> str | None:
        """What the user says to the question; for an approval `approved` or `denied`. None: nobody answers here."""


class NoAudience:
    """Nobody looks on: a detached run."""

    can_answer = False
    keeps_what_it_hears = False

    def event(self, event: Event) -> None:
        """Passes over it: the event is in the tree."""

    def message(self, message: Message) -> None:
        """Passes over it: the message is in the tree."""

    def forgotten(self, event: Event) -> list[int]:
        """None."""
        return []

    def draft(self, text: str) -> None:
        """Passes over it: the draft is in the tree."""

    def tick(self) -> float:
        """Nothing to redraw."""
        return IDLE

    async def ask(self, waiting: Doc) -> str | None:
        """Nobody answers here."""
        return None
